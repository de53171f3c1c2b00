"""The process of one cell, which `mapformers reproduce` starts.

python -m mapformers.launch.worker WORK    (WORK is `Work.to_dict` as JSON)
"""

import json
import os
import sys
import threading

from mapformers import signals


def end_with_parent() -> None:
    """End at once when the process that started this one is gone, however it went: its end of our stdin then closes."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Run the cell to its end; a signal ends the process with one line in log.txt, once the run is saved."""
    signals.end_at_once()
    end_with_parent()
    from mapformers.launch.cell import run_work  # seconds, in which there is nothing to save yet

    try:
        with signals.interrupting():
            return 0 if run_work(json.loads(sys.argv[1])) is None else 1
    except KeyboardInterrupt as error:
        said = signals.sentence(error)
        if said:
            print(f"mapformers: {said}", file=sys.stderr)
        return signals.exit_code(error)


if __name__ == "__main__":
    sys.exit(main())
