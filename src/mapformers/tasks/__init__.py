"""Tasks, one file each. Importing a file registers its task; this is the list."""

from mapformers.tasks import dyck, family_tree, graph, navigation, selective_copy
from mapformers.tasks.task import TASKS, Batch, Metric, Task, TaskEntry, build_task, register_task

__all__ = [
    "TASKS",
    "Batch",
    "Metric",
    "Task",
    "TaskEntry",
    "build_task",
    "dyck",
    "family_tree",
    "graph",
    "navigation",
    "register_task",
    "selective_copy",
]
