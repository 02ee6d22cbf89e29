/* The cases of test_transport over MPI and over the memory of a host: started by CTest with mpirun,
 * each process one rank.
 *     transport_mpi_cases mpi|shared          which of the two must be what TRAINYARD_LINK asked
 * for transport_mpi_cases mpi RANK            one rank may have no memory to share: all do without
 */
#include "collective_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Files, shared memory among them, may be of 64 KiB only. */
static void memory_limit(const char *limited)
{
    const struct rlimit small = {1 << 16, 1 << 16};
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (rank != NULL && strcmp(rank, limited) == 0 && setrlimit(RLIMIT_FSIZE, &small) != 0)
        perror("setrlimit");
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
    const char *link = argc > 1 ? argv[1] : "auto";
    ty_transport *transport = NULL;
    ty_error error = {0};
    ty_status status;

    if (argc > 2)
        memory_limit(argv[2]);
    TY_CHECK(ty_transport_mpi(&transport, &error), status, done);
    TY_CHECK(link_check(transport, link, &error), status, done);
    TY_CHECK(message_cases_run(transport, &error), status, done);
    TY_CHECK(collective_cases_run(transport, &error), status, done);
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
