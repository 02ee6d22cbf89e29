/* trainyard-worker: one rank of a job. All its inputs come from the job file. */
#include "transport.h"
#include "ty_execute.h"
#include "worker_sign.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_INPUT = 3, EXIT_INTERRUPTED = 130 };

static const char usage[] =
    "usage: mpirun -n RANKS trainyard-worker [options] JOB.json\n"
    "\n"
    "Runs one rank of a job written by `trainyard run` or `trainyard profile`. Rank 0 reports\n"
    "progress on standard error and writes the output file named in the job.\n"
    "\n"
    "  -r, --resume   from the newest checkpoint in the job's folder, if there is one\n"
    "  -q, --quiet    no progress on standard error\n"
    "  -h, --help     this text\n"
    "  -V, --version  version\n"
    "\n"
    "With TRAINYARD_SECRET in their environment, or TRAINYARD_SECRET_FILE with the name of a file "
    "of\n"
    "mode 0600, ranks refuse who does not prove to have the same one.\n"
    "\n"
    "exit status: 0 done, 1 failed, 2 usage, 3 bad input file (a wrong number of ranks included),\n"
    "130 interrupted (SIGINT, SIGTERM, SIGUSR1: the step under way was finished and, with a "
    "folder\n"
    "for checkpoints, saved)\n";

static volatile sig_atomic_t stop_requested; /* the only way to report from a signal handler */

static void on_signal(int signal)
{
    stop_requested = signal;
}

/* mpirun forwards SIGUSR1 to its ranks without ending them. */
static void signals_catch(void)
{
    struct sigaction action = {0};

    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

static void *parent_watch(void *parent)
{
    const struct timespec nap = {0, 500000000};

    while (getppid() == *(const pid_t *)parent)
        nanosleep(&nap, NULL);
    _exit(EXIT_FAILURE);
}

/* A rank whose launcher was killed ends by itself, because no other process would end it. */
static void end_with_launcher(void)
{
    static pid_t parent; /* for as long as the process */
    sigset_t all, before;
    pthread_t thread;

    if (getenv("OMPI_COMM_WORLD_RANK") == NULL && getenv("PMIX_RANK") == NULL)
        return;
    parent = getppid();
    sigfillset(&all); /* only the main thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, parent_watch, &parent) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* One thread per rank computes; more would fight for its core. An inherited kernel choice for
 * OpenBLAS would make ranks and profiles differ. */
static void libraries_configure(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    unsetenv("OPENBLAS_CORETYPE");
}

static int exit_code(ty_status status)
{
    switch (status) {
    case TY_OK:
        return EXIT_SUCCESS;
    case TY_EINVAL:
        return EXIT_USAGE;
    case TY_EPARSE:
        return EXIT_INPUT;
    case TY_EINTERRUPTED:
        return EXIT_INTERRUPTED;
    case TY_ENOMEM:
    case TY_EIO:
    case TY_EINFEASIBLE:
    case TY_ELIMIT:
    case TY_EUNSUPPORTED:
    case TY_EBACKEND:
        break;
    }
    return EXIT_FAILURE;
}

/* One rank prints a failure that all share; a rank that failed alone prints its own. */
static void failure_print(const ty_transport *transport, const ty_error *error)
{
    if (transport->rank == 0 || transport->is_broken)
        fprintf(stderr, "trainyard-worker: %s\n", error->message);
    ty_worker_sign(TY_WORKER_SAID);
    if (error->status == TY_ELIMIT)
        ty_worker_sign(TY_WORKER_DIVERGED);
}

/* ---- The end of MPI ----
 * Open MPI 4.1 sometimes crashes in MPI_Finalize, because its progress thread still uses data that
 * is being freed: about once per thousand processes on a busy host. All ranks have passed a barrier
 * before, and the run's output is complete, so the run's status stays as it was. */

static volatile sig_atomic_t final_code;

static void on_crash(int signal)
{
    (void)signal;
    _exit(final_code);
}

static void transport_end(ty_transport *transport, int code)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT};
    enum { CRASHES = sizeof crashes / sizeof *crashes };
    struct sigaction action = {0}, before[CRASHES];

    if (transport->is_broken) { /* ends the other ranks and does not return */
        transport->close(transport);
        return;
    }
    final_code = code;
    action.sa_handler = on_crash;
    fflush(NULL);
    for (int c = 0; c < CRASHES; c++)
        sigaction(crashes[c], &action, &before[c]);
    transport->close(transport);
    for (int c = 0; c < CRASHES; c++)
        sigaction(crashes[c], &before[c], NULL);
}

static int run(const char *path, bool resume, FILE *progress)
{
    ty_transport *transport = NULL;
    ty_job *job = NULL;
    ty_error error = {0};
    bool is_kept = false;
    int code;
    ty_status status;

    signals_catch();
    end_with_launcher();
    status = ty_transport_mpi(&transport, &error);
    if (status != TY_OK) {
        fprintf(stderr, "trainyard-worker: %s\n", error.message);
        ty_worker_sign(TY_WORKER_SAID);
        return EXIT_FAILURE;
    }
    signals_catch(); /* MPI may have installed its own */
    status = ty_job_load(path, &job, &error);
    status = ty_transport_agree(transport, status, &error);
    if (status == TY_OK) {
        if (transport->rank == 0)
            ty_worker_sign(TY_WORKER_BEGUN);
        if (transport->rank == 0 && transport->is_unproven && progress != NULL)
            fprintf(progress,
                    "trainyard-worker: ranks of other hosts are taken at their word: there is no "
                    "secret of the job (" TY_SECRET_VARIABLE ", " TY_SECRET_FILE_VARIABLE ")\n");
        status = ty_execute_job(job, transport,
                                &(ty_execute_options){.progress = progress,
                                                      .stop = &stop_requested,
                                                      .resume = resume,
                                                      .is_kept = &is_kept},
                                &error);
        if (is_kept && transport->rank == 0)
            ty_worker_sign(TY_WORKER_KEPT);
        code = exit_code(status);
    } else {
        code = EXIT_INPUT;
    }
    if (status != TY_OK)
        failure_print(transport, &error);
    transport_end(transport, code);
    ty_job_free(job);
    return code;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"resume", no_argument, NULL, 'r'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    FILE *progress = stderr;
    bool resume = false;
    int option;

    while ((option = getopt_long(argc, argv, "rqhV", options, NULL)) != -1) {
        if (option == 'q') {
            progress = NULL;
            continue;
        }
        if (option == 'r') {
            resume = true;
            continue;
        }
        if (option == 'h') {
            fputs(usage, stdout);
            return EXIT_SUCCESS;
        }
        if (option == 'V') {
            puts("trainyard-worker " TY_VERSION);
            return EXIT_SUCCESS;
        }
        return EXIT_USAGE;
    }
    if (argc - optind != 1) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    libraries_configure();
    return run(argv[optind], resume, progress);
}
