/* The time at which a launcher gives up, in seconds. */
#include "worker.h"

#include <criterion/criterion.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Observations of one process tree, from second 0 on. */
typedef struct story {
    const char *name;
    ty_process_tree tree; /* cpu_s: use in each second */
    double quiet_from_s;  /* no CPU time is used from here on */
    double stuck_to_s;    /* `tree` has unreaped children only before */
    bool have_begun;
    double lost_at_s; /* the first second after which it is lost; 0: never within 1,000 */
    const char *why;
} story;

Test(launcher, is_given_up_when_it_comes_to_nothing)
{
    static const story stories[] = {
        {"never did anything", {3, 2, 0, 0, 0, 0}, 0, 0, false, 31, "silent"},
        {"fell silent", {3, 2, 0, 0.1, 0, 0}, 100, 0, false, 131, "silent"},
        {"a clock that ticks is silence", {3, 2, 0, 0.0015, 0, 0}, 1000, 0, false, 31, "silent"},
        {"starved by dozens of others", {3, 2, 0, 0.0025, 0, 0}, 1000, 0, false, 0, NULL},
        {"spins", {3, 2, 0, 2, 0, 0}, 1000, 0, false, 91, "processor time"},
        {"many ranks take longer", {33, 32, 0, 2, 0, 0}, 1000, 0, false, 991, "processor time"},
        {"a rank ended before all had begun", {3, 2, 1, 1, 0, 0}, 1000, 1000, false, 31, "no note"},
        {"a rank ended later", {3, 2, 1, 1, 0, 0}, 1000, 1000, true, 31, "no note"},
        {"ranks end and are waited for", {3, 2, 1, 1, 0, 0}, 1000, 20, true, 0, NULL},
        {"no rank is left", {1, 0, 0, 0, 0, 0}, 0, 0, true, 31, "no note"},
        {"trains for long", {3, 2, 0, 2, 0, 0}, 1000, 0, true, 0, NULL},
        {"trains and waits for a disk", {3, 2, 0, 0, 0, 0}, 0, 0, true, 0, NULL},
        {"no host answers what was sent", {3, 2, 0, 2, 77, 7}, 1000, 0, true, 31, "no answer"},
        {"none before all had begun", {3, 2, 0, 2, 77, 4}, 1000, 0, false, 31, "no answer"},
        {"a bad network", {3, 2, 0, 2, 77, 3}, 1000, 0, true, 0, NULL},
    };

    for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
        const story *s = &stories[i];
        ty_launch_watch watch = {.patience_s = 30};
        ty_process_tree now = s->tree;
        const char *why = NULL;
        double at_s = 0;
        now.cpu_s = 0;
        for (double t = 0; t < 1000 && why == NULL; t++) {
            at_s = t;
            now.cpu_s += t < s->quiet_from_s ? s->tree.cpu_s : 0;
            now.unreaped_count = t < s->stuck_to_s ? s->tree.unreaped_count : 0;
            why = ty_launch_is_lost(&watch, &now, s->have_begun, 5000 + t);
        }
        cr_assert_eq(why != NULL, s->why != NULL, "%s: %s", s->name, why != NULL ? why : "never");
        if (why == NULL)
            continue;
        cr_assert_not_null(strstr(why, s->why), "%s: %s", s->name, why);
        cr_assert(fabs(at_s - s->lost_at_s) <= 1, "%s: after %g s, not %g", s->name, at_s,
                  s->lost_at_s);
    }
}

/* Bytes acknowledged in an earlier turn, or on another connection, restart the count. */
Test(launcher, a_host_that_answers_now_and_then_is_there)
{
    static const struct {
        uint64_t sockets[2];
        uint32_t counts[2]; /* in turns of 10 s */
        bool is_lost;
    } cases[] = {
        {{5, 6}, {7, 7}, false},
        {{5, 5}, {8, 7}, false},
        {{5, 0}, {7, 0}, false},
        {{5, 5}, {7, 7}, true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ty_launch_watch watch = {.patience_s = 30};
        const char *why = NULL;
        for (unsigned t = 0; t < 400 && why == NULL; t += 5) {
            const unsigned turn = t / 10 % 2;
            const ty_process_tree now = {.process_count = 3,
                                         .child_count = 2,
                                         .cpu_s = t,
                                         .unanswered_socket = cases[i].sockets[turn],
                                         .unanswered_count = cases[i].counts[turn]};
            why = ty_launch_is_lost(&watch, &now, true, 5000 + t);
        }
        cr_assert_eq(why != NULL, cases[i].is_lost, "case %zu: %s", i, why != NULL ? why : "never");
    }
}

/* A child in its own process group with a child, and one that ended: all are seen and killed. */
Test(launcher, all_that_it_started_is_seen_and_killed)
{
    ty_process_tree tree = {0};
    int ready[2], outcome;
    char one;
    pid_t top;

    cr_assert_eq(pipe(ready), 0);
    top = fork();
    if (top == 0) {
        setpgid(0, 0);
        if (fork() == 0)
            _exit(0);
        if (fork() == 0) {
            setpgid(0, 0);
            signal(SIGTERM, SIG_IGN);
            if (fork() == 0) {
                for (volatile unsigned i = 0; i < 300000000; i++)
                    continue;
                if (write(ready[1], "x", 1) != 1)
                    _exit(1);
            }
            close(ready[1]);
            for (;;)
                pause();
        }
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &one, 1), 1);
    for (int tries = 0; tries < 1000 && tree.unreaped_count != 1; tries++) {
        cr_assert(ty_process_tree_read(top, &tree));
        usleep(10000);
    }
    cr_assert_eq(tree.process_count, 4);
    cr_assert_eq(tree.child_count, 2);
    cr_assert_eq(tree.unreaped_count, 1);
    cr_assert_gt(tree.cpu_s, 0);
    ty_process_tree_kill(top);
    cr_assert_eq(waitpid(top, &outcome, 0), top);
    cr_assert(WIFSIGNALED(outcome));
    /* All others that had the pipe's end are gone. */
    cr_assert_eq(read(ready[0], &one, 1), 0, "something is left");
    cr_assert_not(ty_process_tree_read(top, &tree));
}
