/* An accepted profile survives a round trip, and its queries return times. */
#include "fuzz.h"
#include "ty_base.h"
#include "ty_profile.h"

#include <math.h>
#include <string.h>

static ty_profile *read_profile(const char *bytes, size_t length, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_profile *profile = NULL;

    if (ty_json_parse(bytes, length, "input", &document, error) == TY_OK)
        MUST((ty_profile_from_json(ty_json_root(document), &profile, error) == TY_OK) ==
             (profile != NULL));
    ty_json_free(document);
    return profile;
}

static char *text_of(const ty_profile *profile)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *out = NULL;

    ty_profile_to_json(profile, &writer, NULL);
    MUST(ty_text_take(&text, &out, NULL) == TY_OK);
    return out;
}

static void ask_everything(const ty_profile *p)
{
    for (uint32_t size = 0; size < 2000000; size = size * 5 + 1) {
        double a = 0.0, b = 0.0;
        ty_codec_cost codec;
        for (uint32_t i = 0; i < p->layer_time_count && i < 16; i++)
            MUST(ty_profile_layer(p, p->layer_times[i].signature, size, &a, &b) && a >= 0.0 &&
                 b >= 0.0);
        for (uint32_t i = 0; i < p->collective_time_count && i < 16; i++)
            MUST(ty_profile_collective(p, p->collective_times[i].kind,
                                       p->collective_times[i].algorithm, size % 9, size, &a) &&
                 a >= 0.0);
        for (uint32_t i = 0; i < p->codec_time_count && i < 16; i++)
            MUST(ty_profile_codec(p, &p->codec_times[i].compression, size % 9, size, &codec) &&
                 codec.encode_s[0] >= 0.0 && codec.encode_s[1] >= 0.0 && codec.decode_s >= 0.0);
        MUST(ty_profile_transfer(p, size, &a) == (p->transfer_time_count > 0) && a >= 0.0);
        if (ty_profile_update(p, TY_OPTIMIZER_ADAMW, size, &a))
            MUST(a >= 0.0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    ty_error error = {0};
    ty_profile *first = read_profile((const char *)bytes, length, &error), *second;
    char *before, *after;

    if (first == NULL) {
        MUST(error.status == TY_EPARSE && strstr(error.message, "expected") != NULL);
        return 0;
    }
    ask_everything(first);
    before = text_of(first);
    second = read_profile(before, strlen(before), &error);
    MUST(second != NULL);
    after = text_of(second);
    MUST(strcmp(before, after) == 0);
    ty_free(before);
    ty_free(after);
    ty_profile_free(first);
    ty_profile_free(second);
    return 0;
}
