/* Carries messages for a process that knows nothing of MPI. */
#include "call_watch.h"
#include "mpi_frames.h"
#include "relay.h"
#include "transport.h"

#include "ty_base.h"

#include <mpi.h>
#include <poll.h>
#include <stdbool.h>

#define TAG 5 /* below are those of the transport's own messages */
/* Between looks for messages: waiting relays leave their core to working ranks. */
#define WAIT_MS 1

/* A message of another rank, if there is one. */
static ty_status carry_in(int socket, ty_call_watch *watch, ty_error *error)
{
    MPI_Message message;
    MPI_Status from;
    int is_there = 0, length = 0;
    char *bytes;
    ty_status status;

    ty_call_watch_begin(watch);
    MPI_Improbe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &is_there, &message, &from);
    ty_call_watch_end(watch);
    if (!is_there)
        return TY_OK;
    MPI_Get_count(&from, MPI_BYTE, &length);
    bytes = ty_alloc((size_t)length, 1);
    if (bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    MPI_Mrecv(bytes, length, MPI_BYTE, &message, &from);
    status = ty_relay_write(socket, (uint32_t)from.MPI_SOURCE, bytes, (uint32_t)length, error);
    ty_free(bytes);
    return status;
}

/* A frame for another rank. @param is_end [out] it was the last */
static ty_status carry_out(int socket, uint32_t size, bool *is_end, ty_error *error)
{
    ty_relay_frame frame;
    ty_status status = ty_relay_read(socket, &frame, error);

    if (status != TY_OK)
        return status;
    *is_end = frame.peer == TY_RELAY_END;
    if (!*is_end && frame.peer >= size)
        status = ty_fail(error, TY_EPARSE, "relay: found rank %u, expected one below %u",
                         frame.peer, size);
    else if (!*is_end)
        MPI_Send(frame.bytes, (int)frame.length, MPI_BYTE, (int)frame.peer, TAG, MPI_COMM_WORLD);
    ty_free(frame.bytes);
    return status;
}

ty_status ty_relay_serve(int socket, ty_error *error)
{
    struct pollfd ready = {.fd = socket, .events = POLLIN};
    ty_transport *transport = NULL; /* starts MPI, and knows who is who */
    bool is_end = false;
    ty_status status = ty_transport_mpi(&transport, error);

    if (status != TY_OK)
        return status;
    TY_CHECK(
        ty_relay_write(socket, transport->rank, &transport->size, sizeof transport->size, error),
        status, done);
    while (!is_end) {
        TY_CHECK(carry_in(socket, ty_transport_mpi_watch(transport), error), status, done);
        if (poll(&ready, 1, WAIT_MS) > 0)
            TY_CHECK(carry_out(socket, transport->size, &is_end, error), status, done);
    }
    transport->close(transport);
done:
    return status;
}
