/* Starting trainyard-worker on local ranks and seeing it to its end. */
#define _GNU_SOURCE /* pipe2 */
#include "question.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the worker's exit status says (execute/worker_main.c); others are failures. */
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
    return ty_fail(error, TY_EIO, "trainyard-worker is not beside %s; set TRAINYARD_WORKER", self);
}

/* In the child: becomes mpirun, or says through the pipe why not. Waiting ranks yield their core,
 * and a dying parent takes them along. */
static void become_mpirun(const char *worker, const char *job, uint32_t ranks, bool quiet,
                          int complaints)
{
    char count[16];
    char *words[20];
    int n = 0;

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
    words[n++] = "--quiet";
    words[n++] = "-n";
    words[n++] = count;
    words[n++] = (char *)worker;
    words[n++] = (char *)job;
    if (quiet)
        words[n++] = "--quiet";
    words[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    unsetenv("OPENBLAS_CORETYPE"); /* a forced kernel set can halve the speed of OpenBLAS */
    setenv("OMP_NUM_THREADS", "1", 1);
    execvp(words[0], words);
    if (write(complaints, &errno, sizeof errno) < 0)
        _exit(126);
    _exit(127);
}

/* Waits for the child; passes the first interrupt on, and kills its group 10 s later. */
static int wait_for(pid_t child, const ty_watch *watch)
{
    const struct timespec nap = {0, 20000000};
    double interrupted_at_s = 0;
    bool is_killed = false;
    int outcome = 0;

    while (waitpid(child, &outcome, WNOHANG) == 0) {
        if (interrupted_at_s <= 0 && ty_watch_stops(watch)) {
            interrupted_at_s = ty_now_s();
            kill(child, SIGINT);
        }
        if (interrupted_at_s > 0 && !is_killed && ty_now_s() - interrupted_at_s > 10) {
            kill(-child, SIGKILL);
            is_killed = true;
        }
        nanosleep(&nap, NULL);
    }
    return outcome;
}

/* Shells and mpirun pass a signal on as an exit code above this. */
enum { SIGNAL_CODE = 128 };

/* mpirun ends the other ranks, and its code is the signal's. */
static ty_status rank_killed(const ty_job *job, int signal, ty_error *error)
{
    char latest[PATH_MAX + 16] = "";

    if (job->checkpoint != NULL)
        snprintf(latest, sizeof latest, "%s/latest.json", job->checkpoint);
    if (job->checkpoint != NULL && ty_file_exists(latest))
        return ty_fail(error, TY_EBACKEND,
                       "a rank was ended by signal %d (%s), the others with it; --resume goes on "
                       "from %.128s",
                       signal, strsignal(signal), latest);
    return ty_fail(error, TY_EBACKEND, "a rank was ended by signal %d (%s), the others with it",
                   signal, strsignal(signal));
}

static ty_status status_of(const ty_job *job, int outcome, const ty_watch *watch, ty_error *error)
{
    int code = WIFEXITED(outcome) ? WEXITSTATUS(outcome) : EXIT_FAILURE;

    if (ty_watch_stops(watch) || code == WORKER_INTERRUPTED)
        return ty_fail(error, TY_EINTERRUPTED, "interrupted; nothing was written");
    if (WIFSIGNALED(outcome))
        return ty_fail(error, TY_EBACKEND, "mpirun was ended by signal %d", WTERMSIG(outcome));
    if (code == WORKER_DONE)
        return TY_OK;
    if (code > SIGNAL_CODE && code < SIGNAL_CODE + NSIG)
        return rank_killed(job, code - SIGNAL_CODE, error);
    return ty_fail(error, code == WORKER_BAD_INPUT ? TY_EPARSE : TY_EBACKEND, "%s", "");
}

static void scratch_name(char *path, size_t room, const char *name)
{
    const char *temporary = getenv("TMPDIR");
    bool is_set = temporary != NULL && temporary[0] != '\0';

    snprintf(path, room, "%s/%s-XXXXXX", is_set ? temporary : "/tmp", name);
}

ty_status ty_scratch_file(const char *name, char *path, size_t room, ty_error *error)
{
    int file;

    scratch_name(path, room, name);
    file = mkstemp(path);
    if (file < 0) {
        ty_fail(error, TY_EIO, "%s: %s", path, strerror(errno));
        path[0] = '\0';
        return TY_EIO;
    }
    close(file);
    return TY_OK;
}

ty_status ty_worker_run(ty_job *job, uint32_t ranks, const ty_watch *watch, ty_error *error)
{
    ty_status status = TY_OK;
    char worker[PATH_MAX], folder[PATH_MAX], path[PATH_MAX + 16];
    int ends[2], outcome, why = 0;
    pid_t child;

    path[0] = '\0';
    TY_CHECK(ty_worker_path(worker, error), status, done);
    scratch_name(folder, sizeof folder, "trainyard");
    if (mkdtemp(folder) == NULL)
        return ty_fail(error, TY_EIO, "%s: %s", folder, strerror(errno));
    snprintf(path, sizeof path, "%s/job.json", folder);
    TY_CHECK(ty_job_save(job, path, error), status, cleanup);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        status = ty_fail(error, TY_EIO, "pipe: %s", strerror(errno));
        goto cleanup;
    }
    fflush(NULL);
    child = fork();
    if (child == 0) {
        setpgid(0, 0); /* the terminal's Ctrl-C reaches us alone; we pass it on once */
        become_mpirun(worker, path, ranks, !ty_watch_listens(watch), ends[1]);
    }
    close(ends[1]);
    if (child < 0) {
        status = ty_fail(error, TY_EIO, "cannot start mpirun: %s", strerror(errno));
    } else {
        outcome = wait_for(child, watch);
        status = read(ends[0], &why, sizeof why) == sizeof why
                     ? ty_fail(error, TY_EBACKEND, "mpirun: %s", strerror(why))
                     : status_of(job, outcome, watch, error);
    }
    close(ends[0]);

cleanup:
    unlink(path);
    rmdir(folder);
done:
    return status;
}
