/* gzip, by zlib, in memory. */
#include "gunzip.h"

#include <string.h>
#include <zlib.h>

bool ty_is_gzip(const char *bytes, size_t length)
{
    return length > 2 && memcmp(bytes, "\x1f\x8b\x08", 3) == 0;
}

/* Grows the buffer, including the NUL. */
static ty_status grow(const char *path, char **out, size_t *capacity, ty_error *error)
{
    size_t size = *capacity == 0 ? 65536 : *capacity * 2;
    char *grown;

    if (*capacity >= TY_GUNZIP_LIMIT)
        return ty_fail(error, TY_EPARSE, "%s: found more than %zu bytes once unpacked", path,
                       TY_GUNZIP_LIMIT);
    grown = ty_resize(*out, size + 1, 1);
    TY_TRY(ty_check_memory(grown != NULL, error));
    *out = grown;
    *capacity = size;
    return TY_OK;
}

/* Whether another member follows a member (RFC 1952, section 2.2); zeros are padding. */
static ty_status go_on(const char *path, z_stream *stream, bool *has_more, ty_error *error)
{
    const char *rest = (const char *)stream->next_in;

    *has_more = ty_is_gzip(rest, stream->avail_in);
    if (*has_more)
        return inflateReset(stream) == Z_OK ? TY_OK
                                            : ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
    for (uInt i = 0; i < stream->avail_in; i++)
        if (rest[i] != '\0')
            return ty_fail(error, TY_EPARSE,
                           "%s: found %u bytes behind the gzip file that are none, expected its "
                           "end",
                           path, stream->avail_in);
    return TY_OK;
}

ty_status ty_gunzip(const char *path, char **bytes, size_t *length, ty_error *error)
{
    z_stream stream = {0};
    ty_status status = TY_OK;
    char *out = NULL;
    size_t capacity = 0, used = 0;
    int code = Z_OK;
    bool has_more = true;

    if (*length > UINT32_MAX)
        return ty_fail(error, TY_EPARSE, "%s: found a packed file above 4 GiB", path);
    if (inflateInit2(&stream, 15 + 16) != Z_OK)
        return ty_fail(error, TY_ENOMEM, "%s: out of memory", path);
    stream.next_in = (Bytef *)*bytes;
    stream.avail_in = (uInt)*length;
    while (has_more) {
        if (used == capacity)
            TY_CHECK(grow(path, &out, &capacity, error), status, cleanup);
        stream.next_out = (Bytef *)out + used;
        stream.avail_out = (uInt)(capacity - used);
        code = inflate(&stream, Z_NO_FLUSH);
        used = capacity - stream.avail_out;
        has_more = code == Z_OK;
        if (code == Z_STREAM_END)
            TY_CHECK(go_on(path, &stream, &has_more, error), status, cleanup);
    }
    if (code != Z_STREAM_END) {
        status = ty_fail(error, code == Z_MEM_ERROR ? TY_ENOMEM : TY_EPARSE,
                         "%s: found a broken or cut-off gzip file after %zu bytes: %s", path, used,
                         stream.msg != NULL ? stream.msg : "it ends too early");
        goto cleanup;
    }
    out[used] = '\0';
    ty_free(*bytes);
    *bytes = out;
    *length = used;
    out = NULL; /* ownership moved */

cleanup:
    inflateEnd(&stream);
    ty_free(out);
    return status;
}
