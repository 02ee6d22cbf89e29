/* The box of a torus that a group of devices fills. */
#include "samples.h"

#include <criterion/criterion.h>
#include <stdio.h>

typedef struct group {
    const char *cluster;
    uint32_t first, step, count; /* first, first + step, ... */
    const char *axes;            /* members, spacing, ring or line: "4/1r 2/2l"; "": none */
} group;

static const group groups[] = {
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 1, 64, "4/1r 4/1r 4/1r"},
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 16, 1, 16, "4/1r 4/1r"},
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 1, 2, "2/1l"},
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 3, 4, 16, "4/1r 4/1r"},
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 2, 32, "2/2l 4/1r 4/1r"},
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 1, 6, ""}, /* no box */
    {"torus:4x4x4 @tpu-v4 ici-v4 host:4", 0, 3, 4, ""},
    {"torus:12x16 @tpu-v4 ici-v4 host:4", 0, 3, 64, "4/3r 16/1r"},
    {"torus:12x16 @tpu-v4 ici-v4 host:4", 0, 1, 8, "8/1l"},
    {"torus:12x16 @tpu-v4 ici-v4 host:4", 0, 12, 16, "16/1r"},
    {"torus:2x3 @tpu-v4 ici-v4", 0, 1, 6, "2/1l 3/1r"},
    {"torus:1x5 @tpu-v4 ici-v4", 0, 1, 5, "5/1r"},
    {"torus:3x3x2x2 @tpu-v4 ici-v4", 0, 1, 36, "3/1r 3/1r 2/1l 2/1l"},
    {"mesh:4x8 @tpu-v6e ici-v6e host:4", 0, 1, 32, "4/1l 8/1l"},
    {"mesh:2x2 @tpu-v6e ici-v6e", 0, 1, 4, "2/1l 2/1l"},
    {"[torus:4x4 @tpu-v4 ici-v4] + [torus:4x4 @tpu-v4 ici-v4] wan100", 16, 1, 16, "4/1r 4/1r"},
    {"[torus:4x4 @tpu-v4 ici-v4] + [torus:4x4 @tpu-v4 ici-v4] wan100", 0, 1, 32, ""},
    {"2x dgx-a100", 0, 1, 16, ""},
    {"leaf:2 host:2 gpu:1 @h100-sxm nvlink4 ndr400", 0, 1, 4, ""},
};

static void words_of(const ty_torus *torus, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < torus->axis_count; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%u/%u%c", i == 0 ? "" : " ",
                                 torus->axes[i].members, torus->axes[i].spacing,
                                 torus->axes[i].is_ring ? 'r' : 'l');
}

Test(torus, groups_fill_boxes)
{
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        ty_cluster *cluster = sample_open(groups[g].cluster);
        uint32_t devices[64];
        ty_torus torus;
        char found[96];
        for (uint32_t i = 0; i < groups[g].count; i++) /* in any order */
            devices[groups[g].count - 1 - i] = groups[g].first + i * groups[g].step;
        cr_assert_eq(ty_cluster_torus(cluster, devices, groups[g].count, &torus, NULL), TY_OK);
        words_of(&torus, found, sizeof found);
        cr_expect_str_eq(found, groups[g].axes, "%s from %u by %u: found \"%s\", expected \"%s\"",
                         groups[g].cluster, groups[g].first, groups[g].step, found, groups[g].axes);
        ty_cluster_free(cluster);
    }
}

/* Links of a dimension of two are double; bandwidths and latencies are the links'. */
Test(torus, axes_have_the_rates_of_their_links)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5};
    ty_cluster *cluster = sample_open("torus:2x3 @tpu-v4 ici-v4=20GB/s");
    ty_torus torus;

    cr_assert_eq(ty_cluster_torus(cluster, all, 6, &torus, NULL), TY_OK);
    cr_expect_eq(torus.axes[0].bandwidth_bytes_per_s, 40e9);
    cr_expect_eq(torus.axes[1].bandwidth_bytes_per_s, 20e9);
    cr_expect_eq(torus.axes[1].latency_s, 1e-6);
    ty_cluster_free(cluster);
}
