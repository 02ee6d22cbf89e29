# Slurm on one node, this host. Sourced after tests/cli/lib.sh; needs root, slurmctld, slurmd and
# munged.

# slurm_conf FOLDER PORT: the common part of every slurm.conf here; state and logs are in the
# folder.
slurm_conf() {
    cat <<END
ClusterName=test
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmctldPort=$2
SlurmdPort=$(($2 + 1))
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
SlurmctldPidFile=$1/ctld.pid
SlurmdPidFile=$1/d.pid
SlurmctldLogFile=$1/ctld.log
SlurmdLogFile=$1/d.log
PartitionName=all Nodes=ALL Default=YES State=UP
END
}

# slurm_start: false if it does not start. Its logs are in $scratch/slurm; it ends with the test.
slurm_start() {
    mkdir -p "$scratch/slurm/state" "$scratch/slurm/spool"
    host=$(hostname -s)
    port=$((10000 + 2 * ($$ % 10000))) # its own: tests run concurrently
    cat >"$scratch/slurm/slurm.conf" <<END
$(slurm_conf "$scratch/slurm" $port)
AuthType=auth/munge
AuthInfo=socket=$scratch/slurm/munge.socket
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
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

# slurm_topology FILE NODES: slurmctld's result of a topology.conf over these nodes, as `scontrol
# show topology` prints it; the nodes need not exist. False, with the end of its log, if it does not
# start.
slurm_topology() {
    own=$scratch/topology
    rm -rf "$own"
    mkdir -p "$own/state" "$own/spool"
    cp "$1" "$own/topology.conf"
    cat >"$own/slurm.conf" <<END
$(slurm_conf "$own" $((30000 + 2 * ($$ % 10000))))
AuthType=auth/none
TopologyPlugin=topology/tree
NodeName=$2 NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
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
    [ $tries -lt 40 ] || { tail -n 3 "$own/ctld.log" "$own/why" && false; }
}
