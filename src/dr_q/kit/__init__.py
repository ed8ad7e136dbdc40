"""What every part uses and no part owns: errors by kind, nearest names, atomic writes, locks. Nothing but Python."""

from dr_q.kit.errors import (
    ConfigError,
    DamagedFileError,
    DrQError,
    EnvError,
    MissingPackageError,
    RunFolderError,
    TaskError,
    ToolError,
    TrainingError,
    WorkerError,
    one_line,
)
from dr_q.kit.files import (
    append_whole,
    check_can_make,
    check_can_write,
    folder_name,
    full_path,
    read_small,
    replace_file,
    sha256_of,
    sync_folder,
    write_text,
)
from dr_q.kit.locks import try_lock
from dr_q.kit.names import did_you_mean, nearest, resume_call, shortened, spelled, spelled_as_options
from dr_q.kit.packages import is_installed

__all__ = [
    "ConfigError",
    "DamagedFileError",
    "DrQError",
    "EnvError",
    "MissingPackageError",
    "RunFolderError",
    "TaskError",
    "ToolError",
    "TrainingError",
    "WorkerError",
    "append_whole",
    "check_can_make",
    "check_can_write",
    "did_you_mean",
    "folder_name",
    "full_path",
    "is_installed",
    "nearest",
    "one_line",
    "read_small",
    "replace_file",
    "resume_call",
    "sha256_of",
    "shortened",
    "spelled",
    "spelled_as_options",
    "sync_folder",
    "try_lock",
    "write_text",
]
