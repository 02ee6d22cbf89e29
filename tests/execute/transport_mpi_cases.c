/* The cases of test_transport over MPI and over the memory of a host: started by CTest with mpirun,
 * each process one rank.
 *
 *     transport_mpi_cases mpi|shared    the link that TRAINYARD_LINK must have selected
 *     transport_mpi_cases sockets       MPI over TCP, whose sockets must wake waiting ranks
 *     transport_mpi_cases mpi RANK      one rank has no shared memory: all do without it */
#include "collective_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Limits files, including shared memory, to 64 KiB. */
static void memory_limit(const char *limited)
{
    const struct rlimit small = {1 << 16, 1 << 16};
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (rank != NULL && strcmp(rank, limited) == 0 && setrlimit(RLIMIT_FSIZE, &small) != 0)
        perror("setrlimit");
}

/* Waits for messages that arrive late over sockets. After learning from these, it must sleep longer
 * than a loop that polls. */
static ty_status sockets_check(ty_transport *transport, ty_error *error)
{
    enum { MESSAGES = 12, TAG = 3 };
    const struct timespec pause = {.tv_nsec = 10000000};
    const long least_ns = 1000000;
    char byte = 0;
    ty_status status = TY_OK;

    for (int i = 0; i < MESSAGES && status == TY_OK; i++) {
        if (transport->rank > 0) {
            status = ty_transport_receive(transport, 0, TAG, &byte, 1, error);
            continue;
        }
        nanosleep(&pause, NULL);
        for (uint32_t to = 1; to < transport->size && status == TY_OK; to++)
            status = ty_transport_send(transport, to, TAG, &byte, 1, error);
    }
    if (status == TY_OK && transport->rank > 0 && ty_transport_told_ns(transport, 0, 0) < least_ns)
        status = ty_fail(error, TY_EBACKEND, "found sleeps of %ld ns at most, expected %ld",
                         ty_transport_told_ns(transport, 0, 0), least_ns);
    return status;
}

static ty_status link_check(const ty_transport *transport, const char *expected, ty_error *error)
{
    const char *found = transport->shares_memory ? "shared" : "mpi";

    if (strcmp(found, expected) == 0)
        return TY_OK;
    return ty_fail(error, TY_EBACKEND, "found messages over %s, expected %s", found, expected);
}

int main(int argc, char **argv)
{
    const bool is_sockets = argc > 1 && strcmp(argv[1], "sockets") == 0;
    const char *link = is_sockets ? "mpi" : argc > 1 ? argv[1] : "auto";
    ty_transport *transport = NULL;
    ty_error error = {0};
    ty_status status;

    if (argc > 2)
        memory_limit(argv[2]);
    TY_CHECK(ty_transport_mpi(&transport, &error), status, done);
    TY_CHECK(link_check(transport, link, &error), status, done);
    TY_CHECK(message_cases_run(transport, &error), status, done);
    TY_CHECK(collective_cases_run(transport, &error), status, done);
    if (is_sockets)
        TY_CHECK(sockets_check(transport, &error), status, done);
done:
    if (status != TY_OK)
        fprintf(stderr, "%s\n", error.message);
    if (transport != NULL) {
        if (status == TY_OK && transport->rank == 0)
            printf("%u ranks passed over %s\n", transport->size, link);
        transport->is_broken = status != TY_OK;
        transport->close(transport);
    }
    return status == TY_OK ? 0 : 1;
}
