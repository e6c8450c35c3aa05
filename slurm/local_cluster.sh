#!/usr/bin/env bash
# A real Slurm cluster on one Debian or Ubuntu machine, on loopback, without systemd, for tests of code
# that submits jobs. Needs root.
#
#   slurm/local_cluster.sh start      install what is missing, start everything, wait until all nodes are idle
#   slurm/local_cluster.sh stop       stop what start started, remove its cgroups
#   slurm/local_cluster.sh status     a line for each daemon, then sinfo; exit status 0 only if all is up
#   slurm/local_cluster.sh env        what a client shell needs: eval "$(slurm/local_cluster.sh env)"
#   slurm/local_cluster.sh install    the packages alone (about 50 s)
#   slurm/local_cluster.sh purge      stop, then delete the state folder
#   slurm/local_cluster.sh kill-node n2    as if its machine lost power; start-node n2 brings it back
#   slurm/local_cluster.sh kill-slurmd n2  its daemon alone: jobs live on, and Slurm takes the node for lost
#   slurm/local_cluster.sh restart-controller     slurmctld alone: what is queued and runs stays
#   slurm/local_cluster.sh preempt-signal off     SIGTERM alone announces a preemption; on: the job's --signal
#   slurm/local_cluster.sh submit-limit 2         MaxSubmitJobs: so many tasks of a user in the queue; off: any
#
# Settings (environment); start writes them down, the other commands need LOCAL_SLURM_DIR alone, and so does
# start where some of the cluster still runs:
#   LOCAL_SLURM_DIR      all state (/tmp/local-slurm); a short path: it holds sockets, which take 107 bytes
#   LOCAL_SLURM_NODES    how many nodes, named n1, n2, ... (2)
#   LOCAL_SLURM_CPUS     CPUs that each claims to have (4); may exceed the real number
#   LOCAL_SLURM_MEM_MB   memory that each claims to have (2048)
#   LOCAL_SLURM_GPUS     fake GPUs of each (2): CUDA_VISIBLE_DEVICES is set, nothing is behind it
#   LOCAL_SLURM_PORT     first of the ports used (16810): +7, +9, +21 and up. Two clusters need two ranges
#   LOCAL_SLURM_LIMITS   cgroup: the kernel limits a job's memory and kills (v1 memory controller)
#                        poll:   slurmd sums RSS once a second and kills (OverMemoryKill)
#                        auto:   cgroup where it can be had (auto)
#   LOCAL_SLURM_PREEMPT_SIGNAL   on: preempt_send_user_signal; off: as Slurm does without (on)
#
# Partitions: main, which jobs of high preempt; a job of main then has GraceTime, and is requeued.
#
# How several nodes fit on one host: Debian builds Slurm so that slurmd -N runs many times, one port each.
# Each gets a mount and a UTS namespace, in which the host is called n1, n2, ..., every name leads to
# 127.0.0.1 without a change to the real /etc/hosts, and the cgroup tree is a subtree of this script's own
# cgroup, so that what limits this session limits the jobs too.
#
# Traps that the settings below avoid:
# - AuthInfo cred_expire is also how long a requeued job waits (120 s by default). Below KillWait the job
#   starts again while its old copy still dies: "Duplicate jobid", and the node is drained.
# - Without preempt_send_user_signal a preempted job gets no --signal, SIGTERM alone.
# - Without NoInAddrAny the daemons listen on all interfaces.
# - A daemon keeps the descriptors of its caller open: a lock, the pipe of a CI runner that then never ends.
# - A job that ends within a second may have no sample of its memory: sacct's MaxRSS is then empty or stale.
# - A node that was drained or down stays so in the saved state: start resumes it.
set -euo pipefail

dir=${LOCAL_SLURM_DIR:-/tmp/local-slurm}
controllers="memory freezer cpuacct"    # what Slurm's v1 plugins use here
packages="munge slurmctld slurmd slurm-client slurmdbd mariadb-server-core mariadb-client-core"
host=$(hostname -s)
export SLURM_CONF=$dir/etc/slurm.conf

for descriptor in /proc/$$/fd/*; do
    descriptor=${descriptor##*/}
    if [ "$descriptor" -gt 2 ] && [ "$descriptor" != 255 ]; then eval "exec $descriptor>&-"; fi
done

say() { echo "local_cluster: $*" >&2; }
die() { say "$*"; exit 1; }
usage() { sed -n '2,/^set /p' "$0" | sed '$d; s/^# \{0,1\}//'; }

load_settings() {   # those of start, else of the environment
    nodes=${LOCAL_SLURM_NODES:-2} cpus=${LOCAL_SLURM_CPUS:-4} mem_mb=${LOCAL_SLURM_MEM_MB:-2048}
    gpus=${LOCAL_SLURM_GPUS:-2} port=${LOCAL_SLURM_PORT:-16810} limits=${LOCAL_SLURM_LIMITS:-auto} token=${token:-}
    preempt_signal=${LOCAL_SLURM_PREEMPT_SIGNAL:-on} submit_limit=off
    # shellcheck source=/dev/null
    if [ -f "$dir/run/settings" ]; then . "$dir/run/settings"; fi
}
save_settings() {
    printf '%s\n' "nodes=$nodes cpus=$cpus mem_mb=$mem_mb gpus=$gpus port=$port limits=$limits token=$token preempt_signal=$preempt_signal submit_limit=$submit_limit" \
        >"$dir/run/settings"
}

# A daemon is the process of its pid file, if that still has the daemon's name.
pid_of() { cat "$dir/run/$1.pid" 2>/dev/null || echo; }
alive() {           # alive NAME [COMMAND_NAME]
    local pid; pid=$(pid_of "$1")
    [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "${2:-$1}" ]
}
stop_one() {        # stop_one NAME [COMMAND_NAME]: TERM, and KILL after 15 s
    local pid; pid=$(pid_of "$1")
    if alive "$@"; then
        kill -TERM "$pid" 2>/dev/null || true
        for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$dir/run/$1.pid"
}
wait_for() {        # wait_for SECONDS WHAT COMMAND...
    local tries=$(($1 * 10)) what=$2; shift 2
    for _ in $(seq "$tries"); do "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done
    die "no $what in time; see $dir/log"
}

install_packages() {
    local missing="" package policy="" status=0
    for package in $packages; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=" $package"
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "no apt-get to install$missing"
    say "installing$missing"
    if [ ! -e /usr/sbin/policy-rc.d ]; then    # else the packages start daemons of their own
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"
    fi
    # shellcheck disable=SC2086
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
        install -y -q --no-install-recommends $missing; } >"$dir/log/apt.log" 2>&1 || status=$?
    [ -z "$policy" ] || rm -f "$policy"
    [ "$status" = 0 ] || die "apt-get failed; see $dir/log/apt.log"
}

own_cgroup() {      # own_cgroup CONTROLLER: the folder of this script's v1 cgroup
    local path
    path=$(awk -F: -v c="$1" '{n = split($2, a, ","); for (i = 1; i <= n; i++) if (a[i] == c) print $3}' /proc/self/cgroup)
    echo "/sys/fs/cgroup/$1${path%/}"
}
node_cgroup() { echo "$(own_cgroup "$1")/local_slurm_${token}_$2"; }
pick_limits() {
    local controller folder
    [ "$limits" = auto ] || return 0
    limits=cgroup
    for controller in $controllers; do
        folder=$(own_cgroup "$controller")/local_slurm_probe_$$
        { mkdir "$folder" && rmdir "$folder"; } 2>/dev/null || limits=poll
    done
}
remove_cgroups() {
    local top folder
    [ -f "$dir/run/cgroups" ] || return 0
    while read -r top; do
        [ -d "$top" ] || continue
        find "$top" -depth -type d | while read -r folder; do
            for _ in $(seq 10); do rmdir "$folder" 2>/dev/null && break; sleep 0.1; done
        done
    done <"$dir/run/cgroups"
    rm -f "$dir/run/cgroups"
}

# All processes of a node (slurmd, steps, jobs) see this file mounted on /etc/hosts. The token is random, so
# nothing else can match.
hosts_of() { echo "$dir/etc/hosts.$token.$1"; }
kill_node() {
    local pid
    for pid in $(grep -ls "/hosts\.$token\.$1 /etc/hosts " /proc/[0-9]*/mountinfo | cut -d/ -f3 || true); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -f "$dir/run/slurmd-$1.pid"
}

write_slurm_conf() {
    cat <<X
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$((port + 7))
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.socket,cred_expire=12
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,defer_batch
KillWait=5
SlurmdTimeout=20
SlurmctldTimeout=20
InactiveLimit=0
MinJobAge=600
OverTimeLimit=0
UnkillableStepTimeout=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
$([ "$preempt_signal" = off ] || echo SlurmctldParameters=preempt_send_user_signal)
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
$([ "$submit_limit" = off ] || echo AccountingStorageEnforce=limits)
AccountingStoragePort=$((port + 9))
AccountingStoragePass=$dir/run/munge.socket
AccountingStoreFlags=job_comment,job_script
JobCompType=jobcomp/filetxt
JobCompLoc=$dir/log/jobcomp.txt
JobAcctGatherFrequency=task=1
X
    if [ "$limits" = cgroup ]; then
        printf '%s\n' ProctrackType=proctrack/cgroup TaskPlugin=task/cgroup JobAcctGatherType=jobacct_gather/cgroup
    else
        printf '%s\n' ProctrackType=proctrack/linuxproc TaskPlugin=task/none \
            JobAcctGatherType=jobacct_gather/linux JobAcctGatherParams=OverMemoryKill
    fi
    local i line
    for i in $(seq "$nodes"); do
        line="NodeName=n$i NodeHostname=n$i NodeAddr=127.0.0.1 Port=$((port + 20 + i)) CPUs=$cpus RealMemory=$mem_mb State=UNKNOWN"
        [ "$gpus" = 0 ] || line+=" Gres=gpu:$gpus"
        echo "$line"
    done
    cat <<X
PartitionName=DEFAULT Nodes=ALL MaxTime=INFINITE DefMemPerCPU=256 State=UP
PartitionName=main Default=YES PriorityTier=1  PreemptMode=REQUEUE GraceTime=10
PartitionName=high Default=NO  PriorityTier=10 PreemptMode=OFF
X
}
write_gres_conf() {     # copies of /dev/null stand in for GPUs
    local i j
    for i in $(seq "$nodes"); do
        for j in $(seq 0 $((gpus - 1))); do
            [ -e "$dir/etc/nvidia$j" ] || mknod "$dir/etc/nvidia$j" c 1 3
        done
        [ "$gpus" = 0 ] || echo "NodeName=n$i Name=gpu File=$dir/etc/nvidia[0-$((gpus - 1))] Flags=nvidia_gpu_env"
    done
}
write_configuration() {
    echo "127.0.0.1 localhost $host $(seq -s ' ' -f 'n%g' "$nodes")" >"$dir/etc/hosts"
    write_slurm_conf >"$dir/etc/slurm.conf"
    write_gres_conf >"$dir/etc/gres.conf"
    printf '%s\n' CgroupPlugin=cgroup/v1 "CgroupMountpoint=$dir/cgroup" ConstrainRAMSpace=yes \
        ConstrainSwapSpace=yes AllowedSwapSpace=0 ConstrainCores=no ConstrainDevices=no >"$dir/etc/cgroup.conf"
    printf '%s\n' AuthType=auth/munge "AuthInfo=socket=$dir/run/munge.socket" "DbdHost=$host" DbdAddr=127.0.0.1 \
        "DbdPort=$((port + 9))" CommunicationParameters=NoInAddrAny SlurmUser=root \
        StorageType=accounting_storage/mysql StorageHost=localhost StorageUser=root StorageLoc=slurm_acct \
        "LogFile=$dir/log/slurmdbd.log" "PidFile=$dir/run/slurmdbd.pid" >"$dir/etc/slurmdbd.conf"
    chmod 600 "$dir/etc/slurmdbd.conf"      # slurmdbd refuses to start otherwise
}

start_munge() {
    alive munged && return 0
    [ -f "$dir/etc/munge.key" ] || { head -c 128 /dev/urandom >"$dir/etc/munge.key"; chmod 400 "$dir/etc/munge.key"; }
    munged --force --num-threads=2 --key-file="$dir/etc/munge.key" --socket="$dir/run/munge.socket" \
        --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/etc/munge.seed" \
        2>>"$dir/log/munged.err"
    wait_for 10 munged munge --socket="$dir/run/munge.socket" -n
}
start_accounting() {
    local options=(--no-defaults --user=root "--datadir=$dir/mysql")
    if ! alive mariadbd; then
        [ -d "$dir/mysql/mysql" ] || mariadb-install-db "${options[@]}" --skip-test-db >"$dir/log/mariadb-install.log" 2>&1
        setsid mariadbd "${options[@]}" --socket="$dir/run/mysql.socket" --pid-file="$dir/run/mariadbd.pid" \
            --skip-networking --innodb-buffer-pool-size=32M --innodb-flush-log-at-trx-commit=0 \
            --log-error="$dir/log/mariadbd.log" </dev/null >/dev/null 2>&1 &
        wait_for 60 mariadbd test -S "$dir/run/mysql.socket" -a -s "$dir/run/mariadbd.pid"
    fi
    if ! alive slurmdbd; then
        # libmariadb finds the socket by MYSQL_UNIX_PORT; root logs in through it without a password
        MYSQL_UNIX_PORT=$dir/run/mysql.socket setsid slurmdbd </dev/null >>"$dir/log/slurmdbd.out" 2>&1
        wait_for 60 slurmdbd sacctmgr -n show cluster
    fi
    sacctmgr -n show cluster format=cluster | grep -q local || sacctmgr -i add cluster local >/dev/null
}
start_controller() {
    alive slurmctld && return 0
    setsid slurmctld </dev/null >>"$dir/log/slurmctld.out" 2>&1
    wait_for 30 slurmctld scontrol ping
}
start_node() {
    local node=$1 controller folder binds=()
    alive "slurmd-$node" slurmd && return 0
    mkdir -p "$dir/spool-$node"
    if [ "$limits" = cgroup ]; then
        for controller in $controllers; do
            folder=$(node_cgroup "$controller" "$node")
            mkdir -p "$folder" "$dir/cgroup/$controller"
            grep -qxF "$folder" "$dir/run/cgroups" 2>/dev/null || echo "$folder" >>"$dir/run/cgroups"
            binds+=("$folder" "$dir/cgroup/$controller")
        done
    fi
    cp "$dir/etc/hosts" "$(hosts_of "$node")"
    # the mounts go with the last process of the node; SC2016: the inner shell expands
    # shellcheck disable=SC2016
    setsid unshare --mount --uts bash -euc '
        node=$1; hostname "$node"; shift
        while [ $# -gt 0 ]; do mount --bind "$1" "$2"; shift 2; done
        exec slurmd -N "$node"
    ' start_node "$node" "$(hosts_of "$node")" /etc/hosts ${binds[@]+"${binds[@]}"} \
        </dev/null >>"$dir/log/slurmd-$node.out" 2>&1
}

node_names() { seq -f 'n%g' "$nodes"; }
nodes_are_up() { [ "$(sinfo -h -N -o '%N %T' | sort -u | grep -cE ' (idle|mixed|allocated)$')" = "$nodes" ]; }
nodes_are_known() { ! sinfo -h -N -o %T | grep -q unknown; }
resume_nodes() {
    local node
    for node in $(sinfo -h -N -o '%N %T' | awk '$2 ~ /drain|down|inval|fail/ {print $1}' | sort -u); do
        scontrol update NodeName="$node" State=RESUME 2>/dev/null || true
    done
    nodes_are_up
}

lives_on() {        # some of it: what is missing joins that, with the settings that it was started with
    local name
    for name in munged mariadbd slurmdbd slurmctld $(node_names | sed 's/^/slurmd-/'); do
        ! alive "$name" "${name%%-*}" || return 0
    done
    return 1
}
start() {
    local node
    [ "$(id -u)" = 0 ] || die "needs root"
    [ ${#dir} -le 80 ] || die "LOCAL_SLURM_DIR is too long for the sockets in it: $dir"
    mkdir -p "$dir"/{etc,run,log,ctld,cgroup}
    chmod 755 "$dir" "$dir/run"
    exec 9>"$dir/run/lock"; flock 9
    install_packages 9>&-
    if [ ! -f "$dir/run/settings" ] || ! lives_on; then
        rm -f "$dir/run/settings"; load_settings; pick_limits
        token=${token:-$(od -An -N6 -tx1 /dev/urandom | tr -d ' \n')}    # kept: nodes may have outlived it
        write_configuration; save_settings
    fi
    { start_munge; start_accounting; start_controller; for node in $(node_names); do start_node "$node"; done; } 9>&-
    nodes_are_up || wait_for 60 "$nodes nodes" resume_nodes
    say "up: $nodes nodes, limits by $limits. In your shell: export SLURM_CONF=$SLURM_CONF"
}
stop() {
    local file
    if alive slurmctld; then    # cancelled first, steps end as jobs and not as orphans
        scancel -u root 2>/dev/null || true
        scancel -s KILL -u root 2>/dev/null || true
        for _ in $(seq 50); do [ -z "$(squeue -h -t R,CG 2>/dev/null)" ] && break; sleep 0.1; done
    fi
    for file in "$dir"/run/slurmd-*.pid; do
        [ -e "$file" ] && stop_one "$(basename "$file" .pid)" slurmd &
    done
    wait
    for file in "$dir"/etc/hosts.*.n*; do
        if [ -e "$file" ]; then kill_node "${file##*.}"; rm -f "$file"; fi
    done
    stop_one slurmctld; stop_one slurmdbd
    stop_one mariadbd & stop_one munged & wait
    remove_cgroups
    rm -f "$dir"/run/*.socket
    say "stopped"
}
restart_controller() {
    stop_one slurmctld
    start_controller
}
set_preempt_signal() {      # SlurmctldParameters is read again by scontrol reconfigure
    case "${1:-}" in on | off) preempt_signal=$1 ;; *) die "preempt-signal: expected on or off" ;; esac
    write_slurm_conf >"$dir/etc/slurm.conf.new"
    mv "$dir/etc/slurm.conf.new" "$dir/etc/slurm.conf"
    save_settings
    scontrol reconfigure
}
set_submit_limit() {        # slurmctld reads whether limits are kept when it starts
    case "${1:-}" in off | [1-9] | [1-9][0-9]*) submit_limit=$1 ;; *) die "submit-limit: expected a number, or off" ;; esac
    local most=$submit_limit
    [ "$most" != off ] || most=-1
    sacctmgr -i modify user root set MaxSubmitJobs="$most" >/dev/null
    write_slurm_conf >"$dir/etc/slurm.conf.new"
    mv "$dir/etc/slurm.conf.new" "$dir/etc/slurm.conf"
    save_settings
    restart_controller
    wait_for 60 "word of the nodes" nodes_are_known    # until then sbatch is told that no node has what it asks for
}
status() {
    local result=0 name
    for name in munged mariadbd slurmdbd slurmctld $(node_names | sed 's/^/slurmd-/'); do
        if alive "$name" "${name%%-*}"; then echo "$name up (pid $(pid_of "$name"))"; else echo "$name down"; result=1; fi
    done
    if [ "$result" = 0 ]; then sinfo; nodes_are_up || result=1; fi
    return $result
}

load_settings
case "${1:-}" in
    start) start ;;
    stop) stop ;;
    status) status ;;
    install) mkdir -p "$dir/log"; install_packages ;;
    env) echo "export SLURM_CONF=$SLURM_CONF" ;;
    purge) stop; rm -rf "$dir" ;;
    kill-node) kill_node "${2:?which node?}" ;;
    start-node) start_node "${2:?which node?}" ;;
    kill-slurmd) kill -KILL "$(pid_of "slurmd-${2:?which node?}")"; rm -f "$dir/run/slurmd-$2.pid" ;;
    restart-controller) restart_controller ;;
    preempt-signal) set_preempt_signal "${2:-}" ;;
    submit-limit) set_submit_limit "${2:-}" ;;
    -h | --help) usage ;;
    *) usage >&2; exit 2 ;;
esac
