/* Payloads of groups of elements that share a scale. */
#include "codec_kinds.h"

/* Elements of a group; the last one may be smaller. */
static uint64_t group_size(const ty_codec *codec, uint64_t group)
{
    uint64_t left = codec->options.count - group * TY_COMPRESSION_GROUP;
    return left < TY_COMPRESSION_GROUP ? left : TY_COMPRESSION_GROUP;
}

void codec_groups_encode(ty_codec *codec, const float *gradients, uint64_t group_bytes,
                         codec_group_encode encode)
{
    const uint64_t groups = codec_group_count(codec);
    const uint32_t key = codec_own_key(codec);
    char *scales = codec_own_payload(codec, 0);
    uint8_t *codes = (uint8_t *)scales + groups * sizeof(float);

    for (uint64_t g = 0; g < groups; g++) {
        float scale;
        encode(group_size(codec, g), gradients + g * TY_COMPRESSION_GROUP,
               key + (uint32_t)(g * TY_COMPRESSION_GROUP), &scale, codes + g * group_bytes);
        memcpy(scales + g * sizeof scale, &scale, sizeof scale);
    }
}

/* Group by group, so that the sums stay in the cache while the members' summands are added. */
void codec_groups_decode(ty_codec *codec, float *gradients, uint64_t group_bytes,
                         codec_group_add add)
{
    const uint64_t groups = codec_group_count(codec);

    for (uint64_t g = 0; g < groups; g++) {
        float *sums = gradients + g * TY_COMPRESSION_GROUP;
        memset(sums, 0, group_size(codec, g) * sizeof *sums);
        for (uint32_t m = 0; m < codec->options.member_count; m++) {
            const char *scales = codec_payload_of(codec, 0, m);
            const uint8_t *codes = (const uint8_t *)scales + groups * sizeof(float);
            float scale;
            memcpy(&scale, scales + g * sizeof scale, sizeof scale);
            add(group_size(codec, g), scale, codes + g * group_bytes, sums);
        }
    }
}
