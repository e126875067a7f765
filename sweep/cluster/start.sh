# `sh start.sh ARGUMENTS`: runs the program's driver with the interpreter that the head's Ray runs workers with.
# The job's PATH may have another Python, or none. Ray's job supervisor is the parent of this shell.
raylet=$(tr '\0' '\n' < "/proc/$PPID/environ" | sed -n 's/^RAY_RAYLET_PID=//p')
python=$(tr '\0' '\n' < "/proc/$raylet/cmdline" | sed -n 's/^--python_worker_command=\([^ ]*\) .*/\1/p')
exec "${python:-python}" -m lr_sweep.sweep "$@"
