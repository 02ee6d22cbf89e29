/* Compressed files: the output is zlib's, or the file is refused, within the limit. */
#include "fuzz.h"
#include "gunzip.h"

#include <string.h>
#include <zlib.h>

/* Compressing and decompressing gives the input. */
static void check_again(const char *bytes, size_t length)
{
    z_stream stream = {0};
    uLong room;
    char *packed;
    size_t size;

    MUST(deflateInit2(&stream, 1, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
    room = deflateBound(&stream, (uLong)length);
    MUST((packed = ty_alloc(room + 1, 1)) != NULL);
    stream.next_in = (Bytef *)bytes;
    stream.avail_in = (uInt)length;
    stream.next_out = (Bytef *)packed;
    stream.avail_out = (uInt)room;
    MUST(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    size = room - stream.avail_out;
    deflateEnd(&stream);
    MUST(ty_is_gzip(packed, size) && ty_gunzip("again", &packed, &size, NULL) == TY_OK);
    MUST(size == length && memcmp(packed, bytes, length) == 0 && packed[length] == '\0');
    ty_free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *bytes = ty_alloc(size + 1, 1);
    size_t length = size;
    ty_error error = {0};

    MUST(bytes != NULL);
    memcpy(bytes, data, size);
    if (!ty_is_gzip(bytes, length)) {
        ty_free(bytes);
        return 0;
    }
    if (ty_gunzip("input", &bytes, &length, &error) == TY_OK) {
        MUST(length <= TY_GUNZIP_LIMIT && bytes[length] == '\0');
        check_again(bytes, length);
    } else {
        MUST(strncmp(error.message, "input: ", 7) == 0);
        MUST(length == size && memcmp(bytes, data, size) == 0);
    }
    ty_free(bytes);
    return 0;
}
