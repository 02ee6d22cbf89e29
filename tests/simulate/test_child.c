/* A child that succeeds, fails, dies, hangs: the parent always gets an answer. */
#include "child.h"
#include "engine.h"
#include "platform.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static ty_status doubles(void *context, void *result, ty_error *error)
{
    const uint64_t *numbers = context;
    uint64_t *out = result;
    (void)error;
    for (int i = 0; i < 1000; i++)
        out[i] = 2 * numbers[i];
    return TY_OK;
}

static ty_status refuses(void *context, void *result, ty_error *error)
{
    memset(result, 1, 8);
    return ty_fail(error, TY_EINVAL, "does not like %s", (const char *)context);
}

static ty_status aborts(void *context, void *result, ty_error *error)
{
    (void)context, (void)result, (void)error;
    fprintf(stderr, "[0.0] file.cpp:1: [xbt/INFO] all well\n"
                    "[0.0] file.cpp:2: [xbt/CRITICAL] Link not found: m\n  -> 0# backtrace\n");
    abort();
}

static ty_status kills_itself(void *context, void *result, ty_error *error)
{
    (void)result, (void)error;
    raise(*(int *)context);
    return TY_OK;
}

/* During the simulation, as by Ctrl-C. */
static ty_status is_interrupted_with_an_engine(void *context, void *result, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_network *network = NULL;
    ty_text platform = {0};
    ty_engine engine;

    (void)context, (void)result;
    TY_TRY(ty_cluster_open("leaf:1 host:2 p100-server", NULL, &cluster, error));
    TY_TRY(ty_simgrid_platform(cluster, &platform, error));
    TY_TRY(ty_network_of_cluster(cluster, &network, error));
    TY_TRY(ty_engine_open_simgrid(&engine, network, &platform, error));
    raise(SIGINT);
    return TY_OK;
}

static ty_status exits(void *context, void *result, ty_error *error)
{
    (void)result, (void)error;
    printf("first line\nlast line\n");
    fflush(stdout);
    _exit(*(int *)context);
}

static ty_status chatters(void *context, void *result, ty_error *error)
{
    (void)context, (void)result, (void)error;
    for (int i = 0; i < 20000; i++)
        fprintf(stderr, "line %d of many that nobody reads\n", i);
    return TY_OK;
}

static ty_status hangs(void *context, void *result, ty_error *error)
{
    (void)context, (void)result, (void)error;
    for (int i = 0; i < 100; i++)
        sleep(1);
    return TY_OK;
}

Test(child, its_result_is_seen_and_nothing_else)
{
    uint64_t numbers[1000], out[1000];
    ty_error error = {0};

    for (uint64_t i = 0; i < 1000; i++)
        numbers[i] = i * i;
    cr_assert(ty_child_run(doubles, numbers, out, sizeof out, 10.0, &error) == TY_OK, "%s",
              error.message);
    for (uint64_t i = 0; i < 1000; i++)
        cr_assert_eq(out[i], 2 * i * i);
    cr_expect(ty_child_run(chatters, NULL, out, 0, 10.0, &error) == TY_OK, "%s", error.message);
}

Test(child, every_end_has_its_status_and_message)
{
    static char topic[] = "mondays";
    static int killed = SIGKILL, interrupted = SIGINT, three = 3, zero = 0,
               no_memory = TY_CHILD_NO_MEMORY;
    const struct {
        const char *name;
        ty_child_body body;
        void *context;
        ty_status status;
        const char *message;
    } rows[] = {
        {"refuses", refuses, topic, TY_EINVAL, "does not like mondays"},
        {"aborts", aborts, NULL, TY_EBACKEND, "Link not found: m"},
        {"is killed", kills_itself, &killed, TY_EBACKEND, "signal 9"},
        {"is interrupted", kills_itself, &interrupted, TY_EINTERRUPTED, "interrupted"},
        {"is interrupted as it simulates", is_interrupted_with_an_engine, NULL, TY_EINTERRUPTED,
         "interrupted"},
        {"exits", exits, &three, TY_EBACKEND, "exit code 3: last line"},
        {"exits as if all were well", exits, &zero, TY_EBACKEND, "ended early"},
        {"runs out of memory", exits, &no_memory, TY_ENOMEM, "memory ran out"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t result = 42;
        ty_error error = {0};
        const ty_status status =
            ty_child_run(rows[i].body, rows[i].context, &result, sizeof result, 10.0, &error);
        cr_expect(status == rows[i].status, "%s: status '%s'", rows[i].name,
                  ty_status_name(status));
        cr_expect(error.status == rows[i].status, "%s: error status", rows[i].name);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "%s: message '%s'", rows[i].name,
                  error.message);
        cr_expect(strchr(error.message, '\n') == NULL, "%s: one line", rows[i].name);
        cr_expect_eq(result, 42, "%s: the result is untouched", rows[i].name);
    }
}

Test(child, a_hanging_one_is_stopped_in_time)
{
    ty_error error = {0};
    struct timespec before, after;

    clock_gettime(CLOCK_MONOTONIC, &before);
    const ty_status status = ty_child_run(hangs, NULL, NULL, 0, 0.2, &error);
    clock_gettime(CLOCK_MONOTONIC, &after);
    const double took_s =
        (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    cr_expect(status == TY_ELIMIT, "status '%s'", ty_status_name(status));
    cr_expect(strstr(error.message, "0.2 s") != NULL, "message '%s'", error.message);
    cr_expect(took_s >= 0.2 && took_s < 5.0, "took %g s", took_s);
}

/* Reports its process, then waits for its own child, which does the same and hangs. */
static ty_status has_a_child(void *context, void *result, ty_error *error)
{
    volatile pid_t *pids = context;

    pids[0] = getpid();
    if (pids[1] == 0)
        return ty_child_run(has_a_child, (void *)(pids + 1), result, 0, 100.0, error);
    return hangs(NULL, NULL, error);
}

Test(child, several_at_once_give_their_own_results)
{
    enum { CHILDREN = 5 };
    static uint64_t numbers[CHILDREN][1000];
    uint64_t out[1000];
    ty_child *children[CHILDREN];
    ty_error error = {0};

    for (uint64_t c = 0; c < CHILDREN; c++) {
        for (uint64_t i = 0; i < 1000; i++)
            numbers[c][i] = c * 1000 + i;
        cr_assert(ty_child_start(doubles, numbers[c], sizeof out, 10.0, &children[c], &error) ==
                      TY_OK,
                  "%s", error.message);
    }
    for (uint64_t c = CHILDREN; c-- > 0;) {
        cr_assert(ty_child_wait(children[c], out, &error) == TY_OK, "%s", error.message);
        for (uint64_t i = 0; i < 1000; i++)
            cr_assert_eq(out[i], 2 * (c * 1000 + i));
        ty_child_free(children[c]);
    }
}

Test(child, freed_unended_takes_its_own_children_along)
{
    enum { GENERATIONS = 2 };
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    volatile pid_t *pids = mmap(NULL, (GENERATIONS + 1) * sizeof *pids, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ty_child *child;
    ty_error error = {0};
    int how = 0;

    cr_assert(pids != MAP_FAILED);
    pids[GENERATIONS] = 1;            /* the last has no child */
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that its end can be awaited here */
    cr_assert(ty_child_start(has_a_child, (void *)pids, 0, 100.0, &child, &error) == TY_OK, "%s",
              error.message);
    while (pids[GENERATIONS - 1] == 0)
        nanosleep(&pause, NULL);
    ty_child_free(child);
    cr_expect(kill(pids[0], 0) != 0 && errno == ESRCH);
    cr_expect_eq(waitpid(pids[1], &how, 0), pids[1]);
    cr_expect(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "the grandchild went on");
    munmap((void *)pids, (GENERATIONS + 1) * sizeof *pids);
}
