/* Starts trainyard-worker on local ranks and waits for its end. */
#define _GNU_SOURCE /* pipe2 */
#include "worker.h"
#include "question.h"
#include "run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Exit statuses of the worker (execute/runtime/worker_main.c); others are failures. */
enum { WORKER_DONE = 0, WORKER_BAD_INPUT = 3, WORKER_INTERRUPTED = 130 };

ty_status ty_worker_path(char *out, ty_error *error)
{
    static const char *const places[] = {"trainyard-worker",
                                         "../libexec/trainyard/trainyard-worker"};
    const char *named = getenv("TRAINYARD_WORKER");
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    if (named != NULL) {
        if (access(named, X_OK) != 0)
            return ty_fail(error, TY_EIO, "%s: %s (TRAINYARD_WORKER)", named, strerror(errno));
        snprintf(out, PATH_MAX, "%s", named);
        return TY_OK;
    }
    if (length < 0)
        return ty_fail(error, TY_EIO, "/proc/self/exe: %s", strerror(errno));
    self[length] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char folder[PATH_MAX];
        memcpy(folder, self, (size_t)length + 1);
        if (snprintf(out, PATH_MAX, "%s/%s", dirname(folder), places[i]) < PATH_MAX &&
            access(out, X_OK) == 0)
            return TY_OK;
    }
    if (!TY_HAS_WORKER)
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "run, demo, calibrate and profile need trainyard-worker, which is left out of "
            "this build (TY_WITH_EXECUTE=OFF): set TRAINYARD_WORKER to another build's");
    return ty_fail(error, TY_EIO,
                   "trainyard-worker is not beside %s: install it there (its package is "
                   "trainyard-worker), or set TRAINYARD_WORKER",
                   self);
}

/* Ranks of one host need no network: messages go through memory, and the launcher listens on the
 * loopback. Existing settings of the user, or for several hosts, take precedence. The names are
 * those of Open MPI 4 and 5, and of PMIx. */
static void stay_on_this_host(void)
{
    static const char *const settings[][2] = {
        {"OMPI_MCA_btl", TY_OPEN_MPI_MAJOR < 5 ? "self,vader" : "self,sm"},
        {"OMPI_MCA_pml", "ob1"},
        {"OMPI_MCA_btl_tcp_if_include", "lo"},
        {"PMIX_MCA_ptl_tcp_if_include", "lo"},
    };

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        setenv(settings[i][0], settings[i][1], 0);
    if (TY_OPEN_MPI_MAJOR < 5) /* PRRTE refuses a loopback if the host has other interfaces */
        setenv("OMPI_MCA_oob_tcp_if_include", "lo", 0);
}

/* On several hosts, the launcher probes silent daemons after 10 s, every 5 s, and aborts the run
 * after 4 probes. Its defaults, 300 s, 20 s and 9, add up to eight minutes. The user's settings
 * take precedence. */
static void notice_lost_hosts(void)
{
    static const char *const settings[][2] = {
        {"OMPI_MCA_oob_tcp_keepalive_time", "10"},  {"PRTE_MCA_oob_tcp_keepalive_time", "10"},
        {"OMPI_MCA_oob_tcp_keepalive_intvl", "5"},  {"PRTE_MCA_oob_tcp_keepalive_intvl", "5"},
        {"OMPI_MCA_oob_tcp_keepalive_probes", "4"}, {"PRTE_MCA_oob_tcp_keepalive_probes", "4"},
    };

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        setenv(settings[i][0], settings[i][1], 0);
}

/* Makes a secret by which ranks of this run authenticate, unless the environment has one: only this
 * user can read the environment. Without random numbers, ranks report that they have none.
 * @return the variable for mpirun to pass to all hosts; NULL: none */
static char *secret_make(void)
{
    unsigned char random[32];
    char text[2 * sizeof random + 1];

    if (getenv(TY_SECRET_FILE_VARIABLE) != NULL)
        return TY_SECRET_FILE_VARIABLE;
    if (getenv(TY_SECRET_VARIABLE) != NULL)
        return TY_SECRET_VARIABLE;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return NULL;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    return setenv(TY_SECRET_VARIABLE, text, 1) == 0 ? TY_SECRET_VARIABLE : NULL;
}

/* In the child: becomes mpirun, or reports the failure through the pipe. Waiting ranks yield their
 * core, and end with the parent. */
static void become_mpirun(const char *worker, const char *folder, const char *job, uint32_t ranks,
                          bool quiet, int complaints)
{
    char count[16];
    char *words[20], *secret = secret_make();
    int n = 0, none;

    snprintf(count, sizeof count, "%u", ranks);
    words[n++] = "mpirun";
    if (geteuid() == 0)
        words[n++] = "--allow-run-as-root";
    words[n++] = "--oversubscribe";
    words[n++] = "--bind-to";
    words[n++] = "none";
    words[n++] = "--mca";
    words[n++] = "mpi_yield_when_idle";
    words[n++] = "1";
    if (TY_OPEN_MPI_MAJOR < 5) /* later ones lack the option, and report how a rank ended */
        words[n++] = "--quiet";
    if (secret != NULL) { /* by name only, as all users can read command lines */
        words[n++] = "-x";
        words[n++] = secret;
    }
    words[n++] = "-n";
    words[n++] = count;
    words[n++] = (char *)worker;
    words[n++] = (char *)job;
    if (quiet)
        words[n++] = "--quiet";
    words[n] = NULL;
    none = open("/dev/null", O_RDONLY); /* mpirun would pass our stdin to its first rank */
    if (none >= 0)
        dup2(none, STDIN_FILENO);
    unsetenv("OPENBLAS_CORETYPE"); /* a forced kernel set can halve the speed of OpenBLAS */
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv(TY_WORKER_SIGNS, folder, 1);
    stay_on_this_host();
    notice_lost_hosts();
    /* The launcher's files are in the run's folder and removed with it, even if it is killed, as
     * Open MPI does not clean up. On several hosts, which may share that folder over a network,
     * they stay in the default place. */
    if (ty_private_network_is_wanted())
        setenv(TY_OPEN_MPI_MAJOR < 5 ? "OMPI_MCA_orte_tmpdir_base" : "PRTE_MCA_prte_tmpdir_base",
               folder, 0);
    ty_private_network_enter();
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* last, as a change of credentials resets it */
    execvp(words[0], words);
    if (write(complaints, &errno, sizeof errno) < 0)
        _exit(126);
    _exit(127);
}

/* Whether the worker has left a file of that name in the scratch folder as a sign. */
static bool has_sign(const char *folder, const char *sign)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof path, "%s/%s", folder, sign);
    return ty_file_exists(path);
}

/* On an interrupt, mpirun first passes a signal to the ranks, which end their step and save. mpirun
 * itself kills its ranks within seconds. So it is interrupted only if the ranks do not end within
 * the grace time, on another interrupt, or if they had not begun. Last, all are killed, or at once
 * if mpirun hangs; `lost` is the reason, or NULL. */
static int wait_for(pid_t child, const char *folder, const ty_watch *watch, const char **lost)
{
    const struct timespec nap = {0, 20000000};
    const double grace_s = 120, end_s = 10;
    double told_at_s = 0, ended_at_s = 0, looked_at_s = ty_now_s();
    ty_launch_watch launch = {.patience_s = ty_launch_patience_s()};
    bool is_killed = false;
    int outcome = 0;

    *lost = NULL;
    while (waitpid(child, &outcome, WNOHANG) == 0) {
        const bool have_begun = has_sign(folder, TY_WORKER_BEGUN);
        ty_process_tree tree;
        /* A look at the processes takes milliseconds of CPU time, which ranks in training may
         * need. */
        if (launch.patience_s > 0 && !is_killed &&
            ty_now_s() - looked_at_s > (have_begun ? 5 : 1)) {
            looked_at_s = ty_now_s();
            if (ty_process_tree_read(child, &tree))
                *lost = ty_launch_is_lost(&launch, &tree, have_begun, looked_at_s);
            if (*lost != NULL) {
                ty_process_tree_kill(child);
                is_killed = true;
            }
        }
        if (told_at_s <= 0 && ty_watch_stops(watch) && have_begun) {
            told_at_s = ty_now_s();
            kill(child, SIGUSR1);
            ty_watch_note(watch, "interrupted: the ranks end their step, within %.0f s%s", grace_s,
                          watch->should_stop_now != NULL ? "; another interrupt ends them now"
                                                         : "");
        }
        if (ended_at_s <= 0 && ty_watch_stops(watch) &&
            (told_at_s <= 0 || ty_watch_stops_now(watch) || ty_now_s() - told_at_s > grace_s)) {
            ended_at_s = ty_now_s();
            kill(child, SIGINT);
        }
        if (ended_at_s > 0 && !is_killed && ty_now_s() - ended_at_s > end_s) {
            ty_process_tree_kill(child);
            is_killed = true;
        }
        nanosleep(&nap, NULL);
    }
    return outcome;
}

enum {
    SIGNAL_CODE = 128, /* shells and mpirun report a signal as an exit code above this */
    HOST_LOST_CODE =
        205 /* from Open MPI 4's launcher: a daemon does not answer (ORTE_ERR_COMM_FAILURE, -51) */
};

/* The run ended without its own error, as Open MPI does when memory is limited; it may have left a
 * checkpoint. */
static ty_status broke_off(const ty_job *job, const char *why, ty_error *error)
{
    char latest[PATH_MAX + 16] = "";
    ty_text said = {0};
    ty_status status;

    ty_text_add(&said, why);
    ty_limits_text(&said);
    if (job->checkpoint != NULL)
        snprintf(latest, sizeof latest, "%s/latest.json", job->checkpoint);
    if (job->checkpoint != NULL && ty_file_exists(latest))
        ty_text_addf(&said, "; --resume goes on from %.128s", latest);
    status = ty_text_check(&said, error);
    if (status == TY_OK)
        status = ty_fail(error, TY_EBACKEND, "%s", said.data);
    ty_text_clear(&said);
    return status;
}

/* `lost` as in wait_for. */
static ty_status status_of(ty_job *job, const char *folder, int outcome, const char *lost,
                           const ty_watch *watch, ty_error *error)
{
    int code = WIFEXITED(outcome) ? WEXITSTATUS(outcome) : EXIT_FAILURE;
    char why[192];

    job->is_kept = has_sign(folder, TY_WORKER_KEPT);
    if (ty_watch_stops(watch) || code == WORKER_INTERRUPTED)
        return ty_fail(error, TY_EINTERRUPTED, "interrupted; %s",
                       job->is_kept              ? "the result is of the steps until then"
                       : job->checkpoint != NULL ? "no result was written"
                                                 : "nothing was written");
    if (lost != NULL) {
        snprintf(why, sizeof why, "mpirun was killed after %g s: it %s", ty_launch_patience_s(),
                 lost);
        return broke_off(job, why, error);
    }
    if (WIFSIGNALED(outcome)) {
        snprintf(why, sizeof why, "mpirun was ended by signal %d (%s)", WTERMSIG(outcome),
                 strsignal(WTERMSIG(outcome)));
        return broke_off(job, why, error);
    }
    /* A run that never began has no result; an existing file is from an older run. */
    if (code == WORKER_DONE && has_sign(folder, TY_WORKER_BEGUN))
        return TY_OK;
    /* mpirun ends the other ranks and returns the signal's code. */
    if (code > SIGNAL_CODE && code < SIGNAL_CODE + NSIG) {
        snprintf(why, sizeof why, "a rank was ended by signal %d (%s), the others with it",
                 code - SIGNAL_CODE, strsignal(code - SIGNAL_CODE));
        return broke_off(job, why, error);
    }
    if (has_sign(folder, TY_WORKER_DIVERGED))
        return ty_fail(error, TY_ELIMIT, "%s", "");
    if (has_sign(folder, TY_WORKER_SAID))
        return ty_fail(error, code == WORKER_BAD_INPUT ? TY_EPARSE : TY_EBACKEND, "%s", "");
    if (code == HOST_LOST_CODE)
        return broke_off(job, "mpirun lost a host: it, or the network to it, is gone", error);
    snprintf(why, sizeof why, "mpirun and trainyard-worker ended with code %d and without a word",
             code);
    return broke_off(job, why, error);
}

ty_status ty_worker_run(ty_job *job, uint32_t ranks, const ty_watch *watch, ty_error *error)
{
    ty_status status = TY_OK;
    char worker[PATH_MAX], folder[PATH_MAX], segments[PATH_MAX], path[PATH_MAX + 16];
    const char *lost;
    int folder_held, segments_held, ends[2], outcome, why = 0;
    pid_t child;

    TY_CHECK(ty_processes_check(job, ranks, error), status, done);
    TY_CHECK(ty_worker_path(worker, error), status, done);
    TY_CHECK(ty_run_folder_make(folder, &folder_held, error), status, done);
    segments_held = ty_run_segments_make(segments);
    snprintf(path, sizeof path, "%s/job.json", folder);
    TY_CHECK(ty_job_save(job, path, error), status, cleanup);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        status = ty_fail(error, TY_EIO, "pipe: %s", strerror(errno));
        goto cleanup;
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        setpgid(0, 0); /* Ctrl-C only reaches this process, which passes it on once */
        if (segments[0] != '\0')
            setenv(TY_OPEN_MPI_MAJOR < 5 ? "OMPI_MCA_btl_vader_backing_directory"
                                         : "OMPI_MCA_btl_sm_backing_directory",
                   segments, 0);
        become_mpirun(worker, folder, path, ranks, !ty_watch_listens(watch), ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        status = ty_fail(error, TY_EIO, "cannot start mpirun: %s", strerror(errno));
    } else {
        outcome = wait_for(child, folder, watch, &lost);
        status = read(ends[0], &why, sizeof why) == sizeof why
                     ? ty_fail(error, TY_EBACKEND, "mpirun: %s", strerror(why))
                     : status_of(job, folder, outcome, lost, watch, error);
    }
    close(ends[0]);

cleanup:
    ty_run_folder_remove(folder, folder_held);
    ty_run_folder_remove(segments, segments_held);
done:
    return status;
}
