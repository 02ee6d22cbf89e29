/* Frames between a process and its relay: see mpi_frames.h. */
#include "mpi_frames.h"

#include "ty_base.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static ty_status read_all(int socket, void *out, size_t length, ty_error *error)
{
    for (char *at = out; length > 0;) {
        const ssize_t count = recv(socket, at, length, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return ty_fail(error, TY_EIO, "relay: %s",
                           count == 0 ? "the other end is gone" : strerror(errno));
        at += count;
        length -= (size_t)count;
    }
    return TY_OK;
}

static ty_status write_all(int socket, const void *bytes, size_t length, ty_error *error)
{
    for (const char *at = bytes; length > 0;) {
        const ssize_t count = send(socket, at, length, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return ty_fail(error, TY_EIO, "relay: %s", strerror(errno));
        at += count;
        length -= (size_t)count;
    }
    return TY_OK;
}

ty_status ty_relay_read(int socket, ty_relay_frame *out, ty_error *error)
{
    uint32_t head[2];
    char *bytes;
    ty_status status = TY_OK;

    TY_TRY(read_all(socket, head, sizeof head, error));
    if (head[1] > TY_RELAY_MOST_BYTES)
        return ty_fail(error, TY_EPARSE, "relay: found a frame of %u bytes, expected at most %u",
                       head[1], TY_RELAY_MOST_BYTES);
    bytes = ty_alloc((size_t)head[1] + 1, 1);
    TY_TRY(ty_check_memory(bytes != NULL, error));
    status = read_all(socket, bytes, head[1], error);
    if (status == TY_OK)
        *out = (ty_relay_frame){head[0], head[1], bytes};
    else
        ty_free(bytes);
    return status;
}

ty_status ty_relay_write(int socket, uint32_t peer, const void *bytes, uint32_t length,
                         ty_error *error)
{
    const uint32_t head[2] = {peer, length};

    TY_TRY(write_all(socket, head, sizeof head, error));
    return write_all(socket, bytes, length, error);
}
