# `ssh MACHINE sh -s < end.sh`: ends the Ray and MLflow of a cluster on this machine, with all that they started, and
# prints `left:` and what is left, a line each. It needs no file of the cluster, and leaves a user's own sweeps alone.

# This user's processes that have the cluster's way of asking for a token in their environment, if they are Ray's, a job
# or started by a job; those of Ray that write their name over their environment; what is about to start Ray; and MLflow.
of_the_cluster() {
  {
    grep -lsz '^RAY_AUTH_MODE=token$' /proc/[0-9]*/environ
    grep -lsz -e '^ray::' -e '^ray-dashboard-' -e '^ssh: .*/ray_ssh_' -e 'cluster\.mlflow_server$' \
      -e 'sweep/cluster/bin/ra[y] start' /proc/[0-9]*/cmdline
  } | cut -d/ -f3 | sort -un | while read -r pid; do
    [ -O "/proc/$pid" ] || continue
    command=$(tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline")
    case $command in
    ray::* | ray-dashboard-*) # `lr-sweep run` keeps its Ray's logs in lr-sweep-UID/r-NUMBER
      ls -l "/proc/$pid/fd" 2> /dev/null | grep -q '/lr-sweep-[0-9]*/r-' && continue
      ;;
    */site-packages/ray/* | *' -m ray.'* | *lr_sweep.sweep.cluster.* | *bin/ray\ start* | ssh:*/ray_ssh_*) ;;
    *) grep -qsz -e '^RAY_RAYLET_PID=' -e '^RAY_JOB_CONFIG_JSON_ENV_VAR=' "/proc/$pid/environ" || continue ;;
    esac
    echo "$pid $command"
  done
}

for signal in TERM KILL; do
  of_the_cluster | while read -r pid command; do kill "-$signal" "$pid" 2> /dev/null; done
  for second in 1 2 3 4 5; do
    [ -n "$(of_the_cluster)" ] || break 2
    sleep 1
  done
done
echo left:
of_the_cluster
