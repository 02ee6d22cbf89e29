/* A call that uses too much CPU time ends its process with a message. Calls that sleep, any number
 * of short calls, and calls during which clocks are set do not. */
#include "call_watch.h"
#include "ty_run.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 0.2

static _Atomic time_t clocks_off_s; /* offset of all clocks except the steady one */

/* Replaces the C library's, as in a program that sets clocks. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long code = syscall(SYS_clock_gettime, clock, now);

    if (code == 0 && clock != CLOCK_MONOTONIC)
        now->tv_sec += atomic_load(&clocks_off_s);
    return (int)code;
}

static double used_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void use(double seconds)
{
    const double until_s = used_s() + seconds;

    while (used_s() < until_s) {
    }
}

static void in_one_call(ty_call_watch *watch)
{
    ty_call_watch_begin(watch);
    use(20 * PATIENCE_S);
    ty_call_watch_end(watch);
}

static void in_many_calls(ty_call_watch *watch)
{
    for (int i = 0; i < 400; i++) {
        ty_call_watch_begin(watch);
        use(PATIENCE_S / 100);
        ty_call_watch_end(watch);
    }
}

static void between_calls(ty_call_watch *watch)
{
    ty_call_watch_begin(watch);
    ty_call_watch_end(watch);
    use(4 * PATIENCE_S);
}

static void asleep(ty_call_watch *watch)
{
    ty_call_watch_begin(watch);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    ty_call_watch_end(watch);
}

static void while_clocks_are_set(ty_call_watch *watch)
{
    ty_call_watch_begin(watch);
    for (int i = 0; i < 10; i++) {
        atomic_store(&clocks_off_s, i % 2 == 0 ? 0 : 3600);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    ty_call_watch_end(watch);
}

static void *in_one_call_of_a_thread(void *watch)
{
    in_one_call(watch);
    return NULL;
}

static void in_a_thread(ty_call_watch *watch)
{
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, in_one_call_of_a_thread, watch), 0);
    pthread_join(thread, NULL);
}

/* Message of a process that runs `act` under a watch; its exit code is `code`. */
static void expect(void (*act)(ty_call_watch *watch), int code, const char *said)
{
    int ends[2], status = 0;
    char text[256] = "", folder[] = "/tmp/ty-call-watch-XXXXXX", sign[64];
    ssize_t length;
    pid_t child;

    cr_assert_not_null(mkdtemp(folder));
    snprintf(sign, sizeof sign, "%s/" TY_WORKER_SAID, folder);
    cr_assert_eq(pipe(ends), 0);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        ty_call_watch *watch = NULL;
        dup2(ends[1], STDERR_FILENO);
        setenv(TY_WORKER_SIGNS, folder, 1);
        if (ty_call_watch_open(PATIENCE_S, "rank 3: lost", &watch, NULL) != TY_OK)
            _exit(99);
        act(watch);
        ty_call_watch_close(watch);
        _exit(42);
    }
    close(ends[1]);
    length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status));
    cr_assert_eq(WEXITSTATUS(status), code);
    cr_assert_eq(length, (ssize_t)strlen(said));
    cr_assert_str_eq(text, said);
    cr_assert_eq(unlink(sign) == 0, code == EXIT_FAILURE);
    cr_assert_eq(rmdir(folder), 0);
}

Test(call_watch, lost_in_a_call)
{
    expect(in_one_call, EXIT_FAILURE, "rank 3: lost\n");
    expect(in_a_thread, EXIT_FAILURE, "rank 3: lost\n");
}

Test(call_watch, not_lost)
{
    expect(in_many_calls, 42, "");
    expect(between_calls, 42, "");
    expect(asleep, 42, "");
    expect(while_clocks_are_set, 42, "");
}

Test(call_watch, nothing_is_open)
{
    ty_call_watch_close(NULL);
}
