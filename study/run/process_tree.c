/* The processes below one, from /proc. Ranks have their own process groups, so a launcher's group
 * does not include all processes that it started. */
#include "worker.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct process {
    pid_t id, parent;
    char state;
    double cpu_s; /* its own and that of waited-for children */
    bool is_below;
} process;

static bool process_read(const char *id, process *out)
{
    char path[64], text[1024];
    const char *rest;
    unsigned long user, system;
    long waited_user, waited_system;
    size_t length;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%.20s/stat", id);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    rest = strrchr(text, ')'); /* a name may contain any character */
    if (rest == NULL ||
        sscanf(rest, ") %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &out->state,
               &out->parent, &user, &system, &waited_user, &waited_system) != 6)
        return false;
    out->id = (pid_t)strtol(id, NULL, 10);
    out->cpu_s = ((double)user + (double)system + (double)waited_user + (double)waited_system) /
                 (double)sysconf(_SC_CLK_TCK);
    out->is_below = false;
    return true;
}

static int by_id(const void *a, const void *b)
{
    const process *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* All visible processes, by id; NULL without /proc, or if out of memory. */
static process *processes_read(size_t *count)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    process *all = NULL;
    size_t room = 0;

    *count = 0;
    while (proc != NULL && (entry = readdir(proc)) != NULL) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        if (*count == room) {
            process *more;
            room = room > 0 ? 2 * room : 256;
            more = realloc(all, room * sizeof *all);
            if (more == NULL) {
                free(all);
                all = NULL;
                break;
            }
            all = more;
        }
        if (process_read(entry->d_name, &all[*count]))
            (*count)++;
    }
    if (proc != NULL)
        closedir(proc);
    if (all != NULL)
        qsort(all, *count, sizeof *all, by_id);
    return all;
}

static process *find(process *all, size_t count, pid_t id)
{
    return bsearch(&(process){.id = id}, all, count, sizeof *all, by_id);
}

/* Marks `top` and all below it. Ids wrap around, so a child's may be lower than its parent's. */
static bool mark_below(process *all, size_t count, pid_t top)
{
    process *first = find(all, count, top);
    bool is_more = first != NULL;

    if (first != NULL)
        first->is_below = true;
    while (is_more) {
        is_more = false;
        for (size_t i = 0; i < count; i++) {
            const process *parent = all[i].is_below ? NULL : find(all, count, all[i].parent);
            if (parent != NULL && parent->is_below)
                is_more = all[i].is_below = true;
        }
    }
    return first != NULL;
}

/* ---- Connections ---------------------------------------------------------------------------- */

enum { TCP_IS_ESTABLISHED = 1, TIMER_IS_RETRANSMIT = 1 }; /* as in /proc/net/tcp */

/* Whether a process has opened the socket. */
static bool has_socket(pid_t id, uint64_t inode)
{
    char folder[64], wanted[64], target[64];
    const struct dirent *entry;
    bool is_found = false;
    DIR *opened;

    snprintf(folder, sizeof folder, "/proc/%d/fd", (int)id);
    snprintf(wanted, sizeof wanted, "socket:[%" PRIu64 "]", inode);
    opened = opendir(folder);
    while (opened != NULL && !is_found && (entry = readdir(opened)) != NULL) {
        const ssize_t length = readlinkat(dirfd(opened), entry->d_name, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = '\0';
        is_found = strcmp(target, wanted) == 0;
    }
    if (opened != NULL)
        closedir(opened);
    return is_found;
}

static bool is_theirs(const process *all, size_t count, uint64_t inode)
{
    for (size_t i = 0; i < count; i++)
        if (all[i].is_below && has_socket(all[i].id, inode))
            return true;
    return false;
}

/* `name`: tcp or tcp6, in the network of `top`, which includes other processes' connections. */
static void unanswered_read(const process *all, size_t count, pid_t top, const char *name,
                            ty_process_tree *tree)
{
    char path[64], line[512];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)top, name);
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        unsigned state, timer, sent_again;
        uint64_t inode;
        /* slot, local, remote, state, queues, timer, times sent again, user, probes, inode */
        if (sscanf(line, " %*u: %*s %*s %x %*s %x:%*x %x %*u %*u %" SCNu64, &state, &timer,
                   &sent_again, &inode) != 4)
            continue;
        if (state == TCP_IS_ESTABLISHED && timer == TIMER_IS_RETRANSMIT &&
            sent_again > tree->unanswered_count && is_theirs(all, count, inode)) {
            tree->unanswered_socket = inode;
            tree->unanswered_count = sent_again;
        }
    }
    if (file != NULL)
        fclose(file);
}

bool ty_process_tree_read(pid_t top, ty_process_tree *out)
{
    size_t count;
    process *all = processes_read(&count);
    const bool is_there = all != NULL && mark_below(all, count, top);
    ty_process_tree tree = {0};

    for (size_t i = 0; i < count && is_there; i++) {
        if (!all[i].is_below)
            continue;
        tree.process_count++;
        tree.cpu_s += all[i].cpu_s;
        if (all[i].parent == top) {
            tree.child_count++;
            tree.unreaped_count += all[i].state == 'Z';
        }
    }
    if (is_there) {
        unanswered_read(all, count, top, "tcp", &tree);
        unanswered_read(all, count, top, "tcp6", &tree);
        *out = tree;
    }
    free(all);
    return is_there;
}

void ty_process_tree_kill(pid_t top)
{
    size_t count;
    process *all;

    kill(top, SIGSTOP); /* so that it starts no more children */
    all = processes_read(&count);
    if (all != NULL && mark_below(all, count, top))
        for (size_t i = 0; i < count; i++)
            if (all[i].is_below && all[i].id != top)
                kill(all[i].id, SIGKILL);
    free(all);
    kill(-top, SIGKILL);
    kill(top, SIGKILL);
}
