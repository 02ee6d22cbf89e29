/* Frames through a socket: whole, in order, and refused where they are not. */
#include "mpi_frames.h"
#include "ty_base.h"

#include <criterion/criterion.h>

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void open_pair(int ends[2])
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
}

Test(relay, frames_come_as_they_were_sent)
{
    static const char *const texts[] = {"", "a", "rows of another question"};
    int ends[2];

    open_pair(ends);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert_eq(ty_relay_write(ends[0], 7 + i, texts[i], (uint32_t)strlen(texts[i]), NULL),
                     TY_OK);
    for (uint32_t i = 0; i < 3; i++) {
        ty_relay_frame frame;
        cr_assert_eq(ty_relay_read(ends[1], &frame, NULL), TY_OK);
        cr_assert_eq(frame.peer, 7 + i);
        cr_assert_eq(frame.length, strlen(texts[i]));
        cr_assert_str_eq(frame.bytes, texts[i]); /* terminated */
        ty_free(frame.bytes);
    }
    close(ends[0]);
    close(ends[1]);
}

Test(relay, a_stream_that_ends_is_told)
{
    const uint32_t torn[] = {0, 10}, absurd[] = {0, TY_RELAY_MOST_BYTES + 1};
    ty_relay_frame frame;
    ty_error error = {0};
    int ends[2];

    open_pair(ends);
    cr_assert_eq(write(ends[0], torn, sizeof torn), (ssize_t)sizeof torn);
    cr_assert_eq(write(ends[0], "half", 4), 4);
    close(ends[0]);
    cr_assert_eq(ty_relay_read(ends[1], &frame, &error), TY_EIO);
    cr_assert(strstr(error.message, "gone") != NULL, "%s", error.message);
    cr_assert_eq(ty_relay_write(ends[1], 0, "x", 1, &error), TY_EIO); /* and no signal */
    close(ends[1]);

    open_pair(ends);
    cr_assert_eq(write(ends[0], absurd, sizeof absurd), (ssize_t)sizeof absurd);
    cr_assert_eq(ty_relay_read(ends[1], &frame, &error), TY_EPARSE);
    close(ends[0]);
    close(ends[1]);
}
