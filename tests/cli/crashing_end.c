/* Preloaded into ranks: MPI_Finalize returns as usual, and then another thread ends by a signal, as
 * Open MPI's own thread sometimes does. CRASH: which signal. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

int MPI_Finalize(void);

static void *crash(void *nothing)
{
    raise(atoi(getenv("CRASH")));
    return nothing;
}

int MPI_Finalize(void)
{
    int (*finalize)(void) = (int (*)(void))dlsym(RTLD_NEXT, "MPI_Finalize");
    const int code = finalize();
    pthread_t thread;

    if (getenv("CRASH") != NULL && pthread_create(&thread, NULL, crash, NULL) == 0)
        pthread_join(thread, NULL);
    return code;
}
