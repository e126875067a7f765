# `sh start.sh ARGUMENTS`: runs the program's driver with the interpreter that the head's Ray runs workers with.
# The job's PATH may have another Python, or none. Ray's job supervisor is the parent of this shell.
raylet=$(tr '\0' '\n' < "/proc/$PPID/environ" | sed -n 's/^RAY_RAYLET_PID=//p')
python=$(tr '\0' '\n' < "/proc/$raylet/cmdline" | sed -n 's/^--python_worker_command=\([^ ]*\) .*/\1/p')
# For a job that asks for memory, Ray (2.60) hides the head's GPUs from the driver, which may pretrain, and lets all
# workers have the driver's priority: with 15, Ray's own, the machine answers while they train.
unset CUDA_VISIBLE_DEVICES
devices=$(tr '\0' '\n' < "/proc/$raylet/environ" | grep '^CUDA_VISIBLE_DEVICES=') && export "$devices"
niceness='"RAY_worker_niceness": "'
RAY_JOB_CONFIG_JSON_ENV_VAR=$(printf %s "$RAY_JOB_CONFIG_JSON_ENV_VAR" | sed "s/${niceness}0/${niceness}15/")
exec "${python:-python}" -m lr_sweep.sweep "$@"
