# Slurm on one node, which is this machine. Sourced behind tests/cli/lib.sh; needs root, slurmctld, slurmd and munged.

# slurm_start: false where it does not come up. Its logs are in $scratch/slurm; it ends with the test.
slurm_start() {
    mkdir -p "$scratch/slurm/state" "$scratch/slurm/spool"
    host=$(hostname -s)
    port=$((10000 + 2 * ($$ % 10000))) # its own: tests run side by side
    cat >"$scratch/slurm/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/slurm/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$scratch/slurm/state
SlurmdSpoolDir=$scratch/slurm/spool
SlurmctldPidFile=$scratch/slurm/ctld.pid
SlurmdPidFile=$scratch/slurm/d.pid
SlurmctldLogFile=$scratch/slurm/ctld.log
SlurmdLogFile=$scratch/slurm/d.log
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
    export SLURM_CONF=$scratch/slurm/slurm.conf
    chmod 755 "$scratch"
    dd if=/dev/urandom of="$scratch/slurm/key" bs=1024 count=1 2>/dev/null
    chmod 400 "$scratch/slurm/key"
    munged --foreground --force --key-file="$scratch/slurm/key" --socket="$scratch/slurm/munge.socket" \
        --pid-file="$scratch/slurm/munge.pid" --log-file="$scratch/slurm/munge.log" --seed-file="$scratch/slurm/seed" >/dev/null 2>&1 &
    munge_pid=$!
    sleep 1
    slurmctld -D >/dev/null 2>&1 &
    ctld_pid=$!
    slurmd -D >/dev/null 2>&1 &
    slurmd_pid=$!
    trap 'kill $slurmd_pid $ctld_pid $munge_pid 2>/dev/null; wait; rm -rf "$scratch"' EXIT
    tries=0
    while [ $tries -lt 40 ] && [ "$(sinfo -h -o %T 2>/dev/null)" != idle ]; do
        tries=$((tries + 1))
        sleep 0.5
    done
    [ "$(sinfo -h -o %T)" = idle ]
}

# slurm_topology FILE NODES: what slurmctld makes of a topology.conf over those nodes, as `scontrol show topology` says
# it; no node has to be there. False, with the end of its log, where it does not come up.
slurm_topology() {
    own=$scratch/topology
    rm -rf "$own"
    mkdir -p "$own/state"
    cp "$1" "$own/topology.conf"
    cat >"$own/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
AuthType=auth/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
TopologyPlugin=topology/tree
SlurmctldPort=$((30000 + $$ % 10000))
StateSaveLocation=$own/state
SlurmdSpoolDir=$own/state
SlurmctldPidFile=$own/ctld.pid
SlurmctldLogFile=$own/log
NodeName=$2 NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
    SLURM_CONF=$own/slurm.conf slurmctld -D >/dev/null 2>&1 &
    topology_pid=$!
    tries=0
    while [ $tries -lt 40 ] && ! SLURM_CONF=$own/slurm.conf scontrol show topology >"$own/shown" 2>"$own/why"; do
        tries=$((tries + 1))
        sleep 0.5
    done
    kill $topology_pid
    wait $topology_pid 2>/dev/null
    cat "$own/shown"
    [ $tries -lt 40 ] || { tail -n 3 "$own/log" "$own/why" && false; }
}
