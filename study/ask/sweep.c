/* A pool of child processes, each with a pipe for its result. */
#include "sweep.h"

#include "question.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_CHILDREN = 256, POLL_MS = 100 };

typedef struct piece {
    pid_t pid;
    int fd;
    uint32_t index;
    ty_text said; /* the status as a letter, then the result or the message */
} piece;

typedef struct pool {
    const ty_sweep *work;
    piece pieces[MOST_CHILDREN];
    uint32_t busy;
} pool;

static void write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno != EINTR)
            return;
        if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        }
    }
}

/* Runs the child; does not return. */
static void live(const ty_sweep *work, uint32_t index, int fd)
{
    ty_text result = {0};
    ty_error error = {0};
    ty_status status = work->work(work->context, index, &result, &error);
    char letter;

    if (status == TY_OK)
        status = ty_text_check(&result, &error);
    if (ty_watch_stops(work->watch))
        status = TY_EINTERRUPTED;
    letter = (char)('a' + status);
    write_all(fd, &letter, 1);
    if (status == TY_OK)
        write_all(fd, result.data != NULL ? result.data : "", result.length);
    else
        write_all(fd, error.message, strlen(error.message));
    /* No exit handlers: they belong to the parent. */
    _exit(0);
}

static ty_status start(pool *p, uint32_t index, ty_error *error)
{
    int ends[2];
    pid_t pid;

    if (pipe(ends) != 0)
        return ty_fail(error, TY_EIO, "pipe: %s", strerror(errno));
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return ty_fail(error, TY_EIO, "fork: %s", strerror(errno));
    }
    if (pid == 0) {
        close(ends[0]);
        live(p->work, index, ends[1]);
    }
    close(ends[1]);
    p->pieces[p->busy++] = (piece){.pid = pid, .fd = ends[0], .index = index};
    return TY_OK;
}

static ty_status lost(const ty_sweep *work, uint32_t index, int how, ty_error *error)
{
    char words[96];

    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
        snprintf(words, sizeof words, "died (signal %d, as where memory runs out)", SIGKILL);
    else
        snprintf(words, sizeof words, "died (%s %d)", WIFSIGNALED(how) ? "signal" : "exit code",
                 WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
    if (ty_watch_stops(work->watch) || work->lose == NULL)
        return ty_fail(error, ty_watch_stops(work->watch) ? TY_EINTERRUPTED : TY_EBACKEND,
                       "the process of row %u %s", index, words);
    return work->lose(work->context, index, words, error);
}

/* After the child closed its pipe: its result, or the reason of its death. */
static ty_status finish(pool *p, uint32_t slot, ty_error *error)
{
    piece done = p->pieces[slot];
    ty_status status = TY_OK;
    int how = 0;

    close(done.fd);
    while (waitpid(done.pid, &how, 0) < 0 && errno == EINTR)
        ;
    p->pieces[slot] = p->pieces[--p->busy];
    if (!WIFEXITED(how) || done.said.length == 0 || done.said.failed != TY_OK)
        status = lost(p->work, done.index, how, error);
    else if (done.said.data[0] != 'a')
        status = ty_fail(error, (ty_status)(done.said.data[0] - 'a'), "%s", done.said.data + 1);
    else
        status = p->work->take(p->work->context, done.index, done.said.data + 1, error);
    ty_text_clear(&done.said);
    return status;
}

/* Reads the children's pipes until one has ended; goes from the last slot, since finishing one
 * moves the last into its place. */
static ty_status listen_once(pool *p, ty_error *error)
{
    struct pollfd fds[MOST_CHILDREN];
    ty_status status = TY_OK;
    char bytes[4096];

    for (uint32_t i = 0; i < p->busy; i++)
        fds[i] = (struct pollfd){.fd = p->pieces[i].fd, .events = POLLIN};
    if (poll(fds, p->busy, POLL_MS) <= 0)
        return TY_OK;
    for (uint32_t i = p->busy; i-- > 0 && status == TY_OK;) {
        ssize_t length;
        if (fds[i].revents == 0)
            continue;
        length = read(fds[i].fd, bytes, sizeof bytes);
        if (length > 0)
            ty_text_append(&p->pieces[i].said, bytes, (size_t)length);
        else if (length == 0 || errno != EINTR)
            status = finish(p, i, error);
    }
    return status;
}

static void end_all(pool *p)
{
    for (uint32_t i = 0; i < p->busy; i++)
        kill(p->pieces[i].pid, SIGKILL);
    for (uint32_t i = 0; i < p->busy; i++) {
        while (waitpid(p->pieces[i].pid, NULL, 0) < 0 && errno == EINTR)
            ;
        close(p->pieces[i].fd);
        ty_text_clear(&p->pieces[i].said);
    }
    p->busy = 0;
}

ty_status ty_sweep_run(const ty_sweep *work, ty_error *error)
{
    const uint32_t most = work->parallel < MOST_CHILDREN ? work->parallel : MOST_CHILDREN;
    pool p = {.work = work};
    uint32_t next = 0;
    ty_status status = TY_OK;

    while (status == TY_OK && (next < work->count || p.busy > 0)) {
        if (ty_watch_stops(work->watch)) {
            status = ty_fail(error, TY_EINTERRUPTED, "interrupted");
        } else if (next < work->count && p.busy < most) {
            if (work->is_wanted == NULL || work->is_wanted(work->context, next))
                status = start(&p, next, error);
            next++;
        } else {
            status = listen_once(&p, error);
        }
    }
    end_all(&p);
    return status;
}
