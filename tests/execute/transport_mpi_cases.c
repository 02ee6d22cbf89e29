/* The cases of test_transport over MPI and over the memory of a host: started by CTest with mpirun,
 * each process one rank, and told which of the two TRAINYARD_LINK asks for. */
#include "collective_cases.h"

#include <stdio.h>
#include <string.h>

/* Only ranks that share memory have bells. */
static ty_status link_check(const ty_transport *transport, const char *expected, ty_error *error)
{
    const char *found = transport->bell != NULL ? "shared" : "mpi";

    if (strcmp(found, expected) == 0)
        return TY_OK;
    return ty_fail(error, TY_EBACKEND, "found messages over %s, expected %s", found, expected);
}

int main(int argc, char **argv)
{
    const char *link = argc == 2 ? argv[1] : "auto";
    ty_transport *transport = NULL;
    ty_error error = {0};
    ty_status status;

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
