#!/usr/bin/env bash
# A cluster of one node on loopback, for tests: `slurm_node.sh start FOLDER`, later `slurm_node.sh stop FOLDER`.
# For root on Debian or Ubuntu, whose slurm-wlm and munge it installs where they lack. Configuration, key, state, logs and
# process ids lie in FOLDER; clients find them by SLURM_CONF=FOLDER/slurm.conf. Nothing outside changes but the packages.
set -euo pipefail
verb=$1 folder=$(mkdir -p "$2" && cd "$2" && pwd)
export SLURM_CONF=$folder/slurm.conf

need_packages() {
    if ! { command -v slurmctld && command -v slurmd && command -v munged; } >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
    fi
}

configure() {
    local host memory
    host=$(hostname -s) memory=$(awk '/^MemTotal/ {print int($2 * 0.8 / 1024)}' /proc/meminfo)
    mkdir -p "$folder"/{spool,state}
    cat > "$SLURM_CONF" <<CONF
ClusterName=loopback
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$((16817 + $$ % 1000))
SlurmdPort=$((18817 + $$ % 1000))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_min_interval=100000,bf_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=20
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 RealMemory=$memory State=UNKNOWN
PartitionName=sweeps Nodes=$host Default=YES PriorityTier=1 GraceTime=30 State=UP
PartitionName=urgent Nodes=$host PriorityTier=9 PreemptMode=OFF State=UP
CONF
}

start() {
    need_packages
    configure
    [ -f "$folder/munge.key" ] || (umask 077 && head -c 1024 /dev/urandom > "$folder/munge.key")
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge.seed" 2>> "$folder/munged.log"
    slurmctld -c
    slurmd -c
    for _ in $(seq 60); do
        if [ "$(sinfo --noheader --partition=sweeps --format=%T 2>/dev/null)" = idle ]; then
            sinfo
            return
        fi
        sleep 0.5
    done
    tail -n 20 "$folder"/*.log >&2
    echo "The node did not come up." >&2
    return 1
}

stop() {
    timeout 30 bash -c 'squeue --noheader --format=%A | xargs --no-run-if-empty scancel
        while squeue --noheader | grep -q .; do sleep 0.3; done' 2>/dev/null || true
    for daemon in slurmd slurmctld munged; do
        [ -f "$folder/$daemon.pid" ] && kill "$(cat "$folder/$daemon.pid")" 2>/dev/null || true
    done
}

"$verb"
