"""A BLiMP in small, written for these tests: the six islands of the paper's table and two paradigms more."""

import json
from pathlib import Path

PARADIGMS = {  # name -> field, term, pairs
    "wh_island": ("syntax", "island_effects", [("What did Ann say the cook ate?", "What did Ann ask who ate?")]),
    "sentential_subject_island": (
        "syntax",
        "island_effects",
        [("Who did singing with Bob annoy?", "Who did singing with annoy Bob?")],
    ),
    "left_branch_island_simple_question": (
        "syntax",
        "island_effects",
        [("Whose hat does Tom wear?", "Whose does Tom wear hat?"), ("Which boat sank?", "Which sank boat?")],
    ),
    "left_branch_island_echo_question": (
        "syntax",
        "island_effects",
        [("Mary was reading whose letters?", "Whose was Mary reading letters?")],
    ),
    "complex_NP_island": (
        "syntax",
        "island_effects",
        [("Who saw a man that sold the boat?", "What did a man that sold see the boat?")],
    ),
    "adjunct_island": (
        "syntax",
        "island_effects",
        [("Who did Sue praise before leaving Rome?", "Who did Sue praise Rome before leaving?")],
    ),
    "anaphor_number_agreement": (
        "morphology",
        "anaphor_agreement",
        [("The boys hurt themselves.", "The boys hurt himself."), ("A girl saw herself.", "A girl saw themselves.")],
    ),
    "npi_present_1": (
        "syntax/semantics",
        "npi_licensing",
        [("Even these birds often sing.", "Even these birds ever sing.")],
    ),
}


def write(folder: Path) -> Path:
    """A folder of .jsonl files as BLiMP's archive has them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (field, term, pairs) in PARADIGMS.items():
        lines = [
            {"sentence_good": good, "sentence_bad": bad, "field": field, "linguistics_term": term, "UID": name}
            for good, bad in pairs
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
