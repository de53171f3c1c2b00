"""Tasks: each one samples batches, names its tokens and scores logits.

The registry finds every file of this folder whose first line names a task, and imports it when the task is first used.
"""

from mapformers.tasks.task import TASKS, Batch, Metric, Task, TaskEntry, build_task, register_task

__all__ = ["TASKS", "Batch", "Metric", "Task", "TaskEntry", "build_task", "register_task"]
