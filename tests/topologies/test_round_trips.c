/* Exported clusters are the same after import; content that a format cannot express is refused. */
#include "samples.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define DATA TY_TEST_SOURCE "/data/"

static char *export_as(const ty_cluster *c, const char *format)
{
    ty_text text = {0};
    ty_error error = {0};
    char *taken = NULL;

    cr_assert_eq(ty_cluster_export(c, format, NULL, &text, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_text_take(&text, &taken, NULL), TY_OK);
    return taken;
}

static ty_cluster *import_text(const char *text, const ty_cluster_import_options *options,
                               ty_import_notes *notes)
{
    ty_cluster *c = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_import_text(text, strlen(text), "back", options, &c, notes, &error),
                 TY_OK, "%s", error.message);
    return c;
}

/* trainyard.cluster/1 through `cluster import`: byte for byte, with trees, tori and domains. */
Test(round_trips, own_files)
{
    static const char *const lines[] = {"2x dgx-a100", "torus:2x3x2 @tpu-v4 ici-v4 host:4",
                                        "pod:2 leaf:2 host:2 dgx-h100 oversub:2", "gb200-nvl72",
                                        "[2x dgx-a100] + [4x p100-server] wan10"};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ty_cluster *before = sample_open(lines[i]), *after;
        ty_import_notes notes = {0};
        char *text = sample_json(before), *again;
        after = import_text(text, NULL, &notes);
        cr_assert_str_eq(notes.format, "trainyard");
        again = sample_json(after);
        cr_assert_str_eq(again, text, "%s", lines[i]);
        ty_import_notes_clear(&notes);
        ty_free(again);
        ty_free(text);
        ty_cluster_free(after);
        ty_cluster_free(before);
    }
}

Test(round_trips, own_files_are_complete)
{
    ty_cluster *c = sample_open("2x dgx-a100"), *back = NULL;
    ty_cluster_import_options options = {.host = "dgx-a100"};
    char *text = sample_json(c);
    ty_error error = {0};

    cr_assert_eq(ty_cluster_import_text(text, strlen(text), "back", &options, &back, NULL, &error),
                 TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "found a cluster that is complete"));
    text[strlen(text) / 2] = '\0'; /* truncated */
    cr_assert_eq(ty_cluster_import_text(text, strlen(text), "back", NULL, &back, NULL, &error),
                 TY_EPARSE);
    ty_free(text);
    ty_cluster_free(c);
}

/* ---- Slurm ---------------------------------------------------------------------------------- */

Test(round_trips, slurm_blocks)
{
    static const char *texts[] = {
        "# topology.conf of x\nBlockName=b1 Nodes=n1,n2,n3\nBlockName=b2 Nodes=n4,n5,n6\n"
        "BlockSizes=3\n",
        /* A rack that is not full: blocks have at least the planned size. */
        "# topology.conf of x\nBlockName=b1 Nodes=n1,n2,n3\nBlockName=b2 Nodes=n4,n5\n"
        "BlockName=b3 Nodes=n6,n7,n8\nBlockSizes=2\n",
    };
    ty_cluster_import_options options = {.host = "gb200-tray"};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ty_cluster *c = import_text(texts[i], &options, NULL);
        char *out = export_as(c, "slurm");
        cr_assert_str_eq(strchr(out, '\n'), strchr(texts[i], '\n'), "%s", out);
        ty_free(out);
        ty_cluster_free(c);
    }
}

Test(round_trips, slurm_has_no_words_for)
{
    static const struct {
        const char *line, *part;
    } rows[] = {
        {"torus:4x4 @tpu-v3 ici-v3 host:4", "as in a torus or a mesh"},
        {"torus:2x2x2 @tpu-v4 ici-v4", "as in a torus or a mesh"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].line);
        ty_text text = {0};
        ty_error error = {0};
        cr_assert_eq(ty_cluster_export(c, "slurm", NULL, &text, &error), TY_EUNSUPPORTED, "%s",
                     rows[i].line);
        cr_assert_not_null(strstr(error.message, rows[i].part), "%s", error.message);
        cr_assert_eq(text.length, 0);
        ty_cluster_free(c);
    }
}

/* A line means the same for any names of hosts; two hosts with the same exported name are
 * refused. */
/* A cluster's own text with other names for its two hosts. */
static char *rename_hosts(const char *text, const char *const *names)
{
    static const char host[] = "host-";
    ty_text out = {0};
    char *taken = NULL;

    for (const char *at; (at = strstr(text, host)) != NULL; text = at + sizeof host) {
        ty_text_append(&out, text, (size_t)(at - text));
        ty_text_add(&out, names[at[sizeof host - 1] - '0']);
    }
    ty_text_add(&out, text);
    cr_assert_eq(ty_text_take(&out, &taken, NULL), TY_OK);
    return taken;
}

Test(round_trips, slurm_names_are_names)
{
    static const struct {
        const char *names[2], *line, *refusal;
    } rows[] = {
        {{"a,b[1-3]", "c"}, "\nSwitchName=fabric Nodes=a_b_1-3_,c\n", NULL},
        {{"a Switches=x", "c"}, "\nSwitchName=fabric Nodes=a_Switches_x,c\n", NULL},
        {{"a=b#c\\\\d'e", "c"}, "\nSwitchName=fabric Nodes=a_b_c_d_e,c\n", NULL},
        {{"a.b", "a-b"}, "\nSwitchName=fabric Nodes=a.b,a-b\n", NULL},
        {{"a.b", "a.bc"}, "\nSwitchName=fabric Nodes=a.b,a.bc\n", NULL},
        {{"a b", "a_b"}, NULL, "found two hosts that topology.conf would call a_b, expected"},
    };
    ty_cluster *usual = sample_open("2x p100-server");
    char *own = sample_json(usual);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = rename_hosts(own, rows[i].names);
        ty_text out = {0};
        ty_error error = {0};
        ty_cluster *c = import_text(text, NULL, NULL);
        if (rows[i].refusal == NULL) {
            cr_assert_eq(ty_cluster_export(c, "slurm", NULL, &out, &error), TY_OK, "%s",
                         error.message);
            cr_assert_not_null(strstr(out.data, rows[i].line), "%s: %s", text, out.data);
        } else {
            cr_assert_eq(ty_cluster_export(c, "slurm", NULL, &out, &error), TY_EUNSUPPORTED);
            cr_assert_not_null(strstr(error.message, rows[i].refusal), "%s", error.message);
            cr_assert_eq(out.length, 0);
        }
        ty_text_clear(&out);
        ty_cluster_free(c);
        ty_free(text);
    }
    ty_free(own);
    ty_cluster_free(usual);
}

/* ---- NCCL ----------------------------------------------------------------------------------- */

static uint32_t count(const char *text, const char *part)
{
    uint32_t found = 0;
    while ((text = strstr(text, part)) != NULL) {
        found++;
        text += strlen(part);
    }
    return found;
}

/* Every GPU has its sm version; made-up addresses are reported as such. */
Test(round_trips, nccl_drawings)
{
    static const char *const hosts[] = {"dgx-a100",    "dgx-h200",        "dgx-b300",
                                        "g5.48xlarge", "rtx-4090-server", "mi300x-server",
                                        "gh200-server"};

    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++) {
        ty_cluster *c = sample_open(hosts[i]);
        char *text = export_as(c, "nccl");
        cr_assert_eq(count(text, " sm=\""), ty_cluster_device_count(c), "%s", hosts[i]);
        cr_assert_eq(count(text, "<!-- a drawing:"), 1, "%s", hosts[i]);
        ty_free(text);
        ty_cluster_free(c);
    }
}

/* Imported addresses are exported again, also after a round trip through a JSON file. */
Test(round_trips, nccl_addresses)
{
    ty_error error = {0};
    ty_cluster *c = NULL, *again;
    char *text, *json;

    cr_assert_eq(ty_cluster_import(DATA "nccl.xml", NULL, &c, NULL, &error), TY_OK, "%s",
                 error.message);
    json = sample_json(c);
    again = import_text(json, NULL, NULL);
    text = export_as(again, "nccl");
    cr_assert_null(strstr(text, "a drawing"), "%s", text);
    cr_assert_not_null(strstr(json, "\"bus_id\""));
    for (const char *at = json; (at = strstr(at, "\"bus_id\": \"")) != NULL;) {
        char wanted[64];
        at += strlen("\"bus_id\": \"");
        snprintf(wanted, sizeof wanted, "busid=\"%.*s\"", (int)strcspn(at, "\""), at);
        cr_assert_eq(count(text, wanted), 1, "%s", wanted);
    }
    ty_free(text);
    ty_free(json);
    ty_cluster_free(again);
    ty_cluster_free(c);
}

Test(round_trips, nccl_has_limits)
{
    static const struct {
        const char *line, *part;
    } rows[] = {
        {"gb200-nvl72", "expected at most the 256 that NCCL reads"},
        {"tpu-v4-host", "NCCL needs sm of each"},
        {"host:1 gpu:2 @mine{like=h100} nvlink4 ndr400", "NCCL needs sm of each"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_cluster *c = sample_open(rows[i].line);
        ty_text text = {0};
        ty_error error = {0};
        cr_assert_eq(ty_cluster_export(c, "nccl", NULL, &text, &error), TY_EUNSUPPORTED, "%s: %s",
                     rows[i].line, error.message);
        cr_assert_not_null(strstr(error.message, rows[i].part), "%s", error.message);
        ty_cluster_free(c);
    }
}
