/* A child process with a shared page for its results and a pipe for its output. */
#include "child.h"

#include "ty_base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_SIZE = 8192, POLL_MS = 20 };

/* Shared between parent and child. */
struct shared {
    ty_status status;
    ty_error error;
    _Alignas(max_align_t) unsigned char result[];
};

struct ty_child {
    pid_t pid; /* 0 before its start and after its end */
    double time_limit_s, deadline_s;
    struct shared *shared;
    size_t result_size;
    int words_fd; /* output of the child; -1 after its end */
    size_t length;
    char words[WORDS_SIZE]; /* the first bytes: the cause precedes the backtrace */
    int wait_status;
};

/* Runs the child; does not return. */
static void live(ty_child_body body, void *context, struct shared *shared, int words_fd,
                 pid_t parent)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    /* If the parent is killed, no other process ends the child. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    dup2(words_fd, STDOUT_FILENO);
    dup2(words_fd, STDERR_FILENO);
    if (words_fd > STDERR_FILENO)
        close(words_fd);
    shared->status = body(context, shared->result, &shared->error);
    /* No exit handlers: they belong to the parent. */
    _exit(0);
}

/* Reads the content of the pipe. */
static void listen(ty_child *child)
{
    char spill[512];

    while (child->words_fd >= 0) {
        const size_t room = WORDS_SIZE - 1 - child->length;
        const ssize_t got = room > 0 ? read(child->words_fd, child->words + child->length, room)
                                     : read(child->words_fd, spill, sizeof spill);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return; /* nothing more for now */
        if (got == 0) {
            close(child->words_fd);
            child->words_fd = -1;
        } else if (room > 0) {
            child->length += (size_t)got;
        }
    }
}

static bool has_ended(ty_child *child, int options)
{
    pid_t got;
    do
        got = waitpid(child->pid, &child->wait_status, options);
    while (got < 0 && errno == EINTR);
    if (got != 0)
        child->pid = 0;
    return got != 0;
}

static void end(ty_child *child)
{
    kill(child->pid, SIGKILL);
    has_ended(child, 0);
}

/* Waits for the end or the deadline; false if the deadline came first and the child was killed. The
 * end of the pipe does not mark the child's end: a later child may have it open. */
static bool attend(ty_child *child)
{
    bool in_time = true;

    while (!has_ended(child, WNOHANG)) {
        const double left_s = child->deadline_s - ty_now_s();
        if (left_s <= 0.0) {
            end(child);
            in_time = false;
            break;
        }
        struct pollfd words = {.fd = child->words_fd, .events = POLLIN};
        const int slice_ms = child->words_fd < 0 ? 1 : POLL_MS;
        const int left_ms = left_s < 1.0 ? (int)(left_s * 1e3) + 1 : POLL_MS;
        (void)poll(&words, 1, left_ms < slice_ms ? left_ms : slice_ms);
        listen(child);
    }
    listen(child);
    return in_time;
}

/* The most informative line: SimGrid's first error, without its prefix; else the last line. */
static const char *last_words(ty_child *child)
{
    static const char *const marks[] = {"/CRITICAL] ", "/ERROR] "};
    char *words = child->words;

    words[child->length] = '\0';
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        char *found = strstr(words, marks[i]);
        if (found != NULL) {
            found += strlen(marks[i]);
            found[strcspn(found, "\n")] = '\0';
            return found;
        }
    }
    while (child->length > 0 && words[child->length - 1] == '\n')
        words[--child->length] = '\0';
    char *line = strrchr(words, '\n');
    return line != NULL ? line + 1 : words;
}

static ty_status explain_death(ty_child *child, ty_error *error)
{
    const int status = child->wait_status;
    const char *words = last_words(child);
    const char *separator = words[0] != '\0' ? ": " : "";

    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM))
        return ty_fail(error, TY_EINTERRUPTED, "simulation interrupted");
    if (WIFEXITED(status) && WEXITSTATUS(status) == TY_CHILD_NO_MEMORY)
        return ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
    if (WIFSIGNALED(status))
        return ty_fail(error, TY_EBACKEND, "simulation died of signal %d (%s)%s%s",
                       WTERMSIG(status), strsignal(WTERMSIG(status)), separator, words);
    return ty_fail(error, TY_EBACKEND, "simulation ended early with exit code %d%s%s",
                   WEXITSTATUS(status), separator, words);
}

static ty_status start(ty_child *child, ty_child_body body, void *context, ty_error *error)
{
    const pid_t parent = getpid();
    int ends[2];

    if (pipe(ends) != 0)
        return ty_fail(error, TY_EIO, "cannot open a pipe to the simulation: %s", strerror(errno));
    fflush(NULL); /* buffered output must not be written twice */
    const pid_t pid = fork();
    if (pid < 0) {
        const int cause = errno;
        close(ends[0]);
        close(ends[1]);
        return ty_fail(error, TY_EIO, "cannot start the simulation: %s", strerror(cause));
    }
    if (pid == 0) {
        close(ends[0]);
        live(body, context, child->shared, ends[1], parent);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    child->pid = pid;
    child->words_fd = ends[0];
    return TY_OK;
}

ty_status ty_child_start(ty_child_body body, void *context, size_t result_size, double time_limit_s,
                         ty_child **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_child *child = ty_alloc(1, sizeof *child);

    *out = NULL;
    if (child == NULL || result_size > SIZE_MAX - sizeof *child->shared) {
        status = ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
        goto cleanup;
    }
    child->words_fd = -1;
    child->result_size = result_size;
    child->time_limit_s = time_limit_s;
    child->deadline_s = ty_now_s() + time_limit_s;
    child->shared = mmap(NULL, sizeof *child->shared + result_size, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (child->shared == MAP_FAILED) {
        child->shared = NULL;
        status = ty_fail(error, TY_ENOMEM, "simulation: no memory for %zu bytes of results",
                         result_size);
        goto cleanup;
    }
    child->shared->status = ty_fail(&child->shared->error, TY_EBACKEND, "simulation ended early");
    TY_CHECK(start(child, body, context, error), status, cleanup);
    *out = child;
    child = NULL;

cleanup:
    ty_child_free(child);
    return status;
}

ty_status ty_child_wait(ty_child *child, void *result, ty_error *error)
{
    const struct shared *shared = child->shared;

    if (!attend(child))
        return ty_fail(error, TY_ELIMIT, "simulation stopped: its %g s were up",
                       child->time_limit_s);
    if (!WIFEXITED(child->wait_status) || WEXITSTATUS(child->wait_status) != 0)
        return explain_death(child, error);
    if (shared->status != TY_OK)
        return ty_fail(error, shared->status, "%s", shared->error.message);
    if (child->result_size > 0)
        memcpy(result, shared->result, child->result_size);
    return TY_OK;
}

void ty_child_free(ty_child *child)
{
    if (child == NULL)
        return;
    if (child->pid > 0)
        end(child);
    if (child->words_fd >= 0)
        close(child->words_fd);
    if (child->shared != NULL)
        munmap(child->shared, sizeof *child->shared + child->result_size);
    ty_free(child);
}

ty_status ty_child_run(ty_child_body body, void *context, void *result, size_t result_size,
                       double time_limit_s, ty_error *error)
{
    ty_child *child = NULL;
    ty_status status = ty_child_start(body, context, result_size, time_limit_s, &child, error);

    if (status == TY_OK)
        status = ty_child_wait(child, result, error);
    ty_child_free(child);
    return status;
}
