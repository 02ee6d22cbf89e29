/**
 * @file worker.h
 * Process management of the worker. Internal to study/.
 */
#ifndef TY_STUDY_WORKER_H
#define TY_STUDY_WORKER_H

#include "ty_study.h"

#include <sys/types.h>

/** TY_EUNSUPPORTED if this machine has too few cores or too little memory for the job's
 * processes. */
ty_status ty_processes_check(const ty_job *job, uint32_t processes, ty_error *error) TY_MUST_CHECK;

/** ", under a limit of ..." for each limit of this process on memory or files; "" without one. */
void ty_limits_text(ty_text *text);

/** A process and all below it. */
typedef struct ty_process_tree {
    uint32_t process_count;  /* itself included */
    uint32_t child_count;    /* direct children, including ended ones that it has not waited for */
    uint32_t unreaped_count; /* ended ones among these */
    double cpu_s;            /* of all, including waited-for descendants */
    /* Their TCP connection, in the network of the first, with the most retransmissions since the
     * last acknowledgement; 0 and 0: all data is acknowledged. */
    uint64_t unanswered_socket; /* its inode */
    uint32_t unanswered_count;
} ty_process_tree;

/** False, without output, if /proc does not show the process. Reads all of /proc. */
bool ty_process_tree_read(pid_t top, ty_process_tree *out);
/** Kills a process of ours, its group, and all below it. */
void ty_process_tree_kill(pid_t top);

/** Seconds that a launcher may be silent: $TRAINYARD_START_SECONDS, 0 means forever; default 30. */
double ty_launch_patience_s(void);

/** Detects a hanging launcher. Zero-initialized; called about once per second. */
typedef struct ty_launch_watch {
    double patience_s; /* > 0 */
    bool is_watching;
    double cpu_s, silent_since_s; /* CPU time at the last increase, and the time of that */
    double stuck_since_s;         /* 0: not stuck */
    uint64_t unanswered_socket;   /* of the tree at the last call */
    uint32_t unanswered_count;
    double unanswered_since_s;
} ty_launch_watch;

/**
 * Before its ranks have begun, a launcher counts as hanging if it and all below it used no CPU time
 * for `patience_s`, or more than twice that per process. It always counts as hanging if for
 * `patience_s` it does not reap an ended child. After the ranks have begun, it also does if it has
 * no child and does not end, or if a host acknowledges no data.
 * @param have_begun the ranks have begun
 * @param now_s      from ty_now_s
 * @return the reason, to follow the launcher's name; NULL: not hanging
 */
const char *ty_launch_is_lost(ty_launch_watch *watch, const ty_process_tree *tree, bool have_begun,
                              double now_s);

/**
 * Moves this process into a network namespace with only a loopback, if the system allows it and
 * $TRAINYARD_NETWORK is not "host".
 */
void ty_private_network_enter(void);
/** False if the user requests the host's network, as runs on several hosts need. */
bool ty_private_network_is_wanted(void);

#endif
