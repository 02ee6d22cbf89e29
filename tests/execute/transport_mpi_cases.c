/* The cases of test_transport over MPI: started by CTest with mpirun, each process one rank. */
#include "collective_cases.h"

#include <stdio.h>

int main(void)
{
    ty_transport *transport = NULL;
    ty_error error = {0};
    ty_status status;

    TY_CHECK(ty_transport_mpi(&transport, &error), status, done);
    TY_CHECK(message_cases_run(transport, &error), status, done);
    TY_CHECK(collective_cases_run(transport, &error), status, done);
done:
    if (status != TY_OK)
        fprintf(stderr, "%s\n", error.message);
    if (transport != NULL) {
        if (status == TY_OK && transport->rank == 0)
            printf("%u ranks passed\n", transport->size);
        transport->is_broken = status != TY_OK;
        transport->close(transport);
    }
    return status == TY_OK ? 0 : 1;
}
