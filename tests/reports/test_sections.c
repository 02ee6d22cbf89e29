/* Data of a report's charts: the critical path, the interconnect, documents. */
#include "scene.h"

#include "critical_path.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- The critical path --------------------------------------------------------------------- */

static double rule_by_index(uint32_t stage_replica, uint32_t step, uint32_t index,
                            const ty_instruction *in)
{
    (void)step, (void)in;
    return 1e-3 * (1 + (index * 7 + stage_replica * 3) % 5);
}

/* Its links connect the end of the last computation to the start without gaps, for every plan. */
Test(critical_path, covers_the_step)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        scene s = scene_of(toy_specs[i].name);
        ty_timeline *timeline = scene_timeline(&s, 1, rule_by_index);
        partners *p = NULL;
        critical_path path = {0};
        double end_s = 0, at_s;

        for (uint64_t e = 0; e < timeline->event_count; e++) {
            const ty_event *event = &timeline->events[e];
            uint32_t stage = ty_plan_stage_of_replica(s.plan, event->stage_replica);
            if (s.program->stages[stage].instructions[event->instruction].stream ==
                TY_STREAM_COMPUTE)
                end_s = fmax(end_s, event->end_s);
        }
        cr_assert_eq(ty_partners_new(s.plan, s.program, &p, NULL), TY_OK);
        cr_assert_eq(ty_critical_path_find(s.plan, s.program, timeline, p, 0, 0, &path, NULL),
                     TY_OK);
        cr_assert_gt(path.count, 1, "%s", toy_specs[i].name);
        at_s = end_s;
        for (uint32_t k = 0; k < path.count; k++) {
            cr_expect_eq(path.links[k].to_s, at_s, "%s, link %u", toy_specs[i].name, k);
            cr_expect_leq(path.links[k].from_s, path.links[k].to_s);
            at_s = path.links[k].from_s;
        }
        cr_expect_eq(at_s, 0, "%s: the path ends at %g s", toy_specs[i].name, at_s);
        cr_expect(
            ty_critical_path_has(&path, path.links[0].stage_replica, path.links[0].instruction));
        ty_critical_path_clear(&path);
        ty_partners_free(p);
        ty_timeline_free(timeline);
        scene_clear(&s);
    }
}

/* ---- Clusters and costs --------------------------------------------------------------------- */

static ty_cluster *cluster_for(const ty_plan *plan)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};
    uint32_t most = 0;
    char line[64];

    for (uint32_t r = 0; r < ty_plan_stage_replica_count(plan); r++)
        for (uint32_t l = 0; l < ty_plan_replica_ranks(plan); l++)
            if (ty_plan_device_of_replica_rank(plan, r, l) > most)
                most = ty_plan_device_of_replica_rank(plan, r, l);
    snprintf(line, sizeof line, "host:%u gpu:2 @h100-sxm nvlink4 ndr400", most / 2 + 1);
    cr_assert_eq(ty_cluster_open(line, NULL, &cluster, &error), TY_OK, "%s", error.message);
    return cluster;
}

/* Every ring edge carries 1000 bytes here. */
static ty_costs *costs_for(const scene *s)
{
    ty_costs *costs = NULL;

    cr_assert_eq(ty_costs_new(s->plan, s->program, &costs, NULL), TY_OK);
    for (uint32_t i = 0; i < s->program->stage_count; i++)
        for (uint32_t k = 0; k < s->program->stages[i].instruction_count; k++)
            costs->instructions[i][k].edge_bytes = 1000;
    return costs;
}

/* ---- Documents ----------------------------------------------------------------------------- */

typedef struct given {
    ty_json_document *parsed;
    ty_report_document document;
} given;

static given give(const char *text)
{
    given g = {0};
    ty_error error = {0};

    cr_assert_eq(ty_json_parse(text, strlen(text), "given.json", &g.parsed, &error), TY_OK, "%s",
                 error.message);
    g.document = (ty_report_document){.path = "given.json", .root = ty_json_root(g.parsed)};
    cr_assert_eq(ty_json_string(g.document.root, "schema", &g.document.schema, NULL), TY_OK);
    g.document.schema = ty_json_schema_now(g.document.schema);
    g.document.digest = ty_digest_of(text, strlen(text));
    return g;
}

static ty_report_input report_of(const given *g)
{
    return (ty_report_input){.documents = &g->document, .document_count = 1};
}

/* A document, and a text or a number that the report shows from it. */
static const struct document_case {
    const char *text, *path, *shown;
    double number;
} document_cases[] = {
    {"{\"schema\":\"trainyard.infeasible/1\",\"workload\":\"w<1>\",\"cluster\":\"c\",\"reason\":"
     "\"misses 2 GiB\"}",
     "workload", "w<1>", 0},
    {"{\"schema\":\"trainyard.whatif/1\",\"question\":{\"workload\":\"w\",\"cluster\":\"c\"},"
     "\"vary\":[{\"key\":\"hosts\",\"values\":[\"1\",\"2\"]}],\"rows\":["
     "{\"values\":{\"hosts\":\"2\"},\"reason\":\"too large\"},"
     "{\"values\":{\"hosts\":\"1\"},\"devices\":8,\"step_time_s\":0.5,\"samples_per_s\":64,"
     "\"estimated_step_time_s\":0.4,\"limited_by\":\"compute\",\"plan\":\"dp\"}]}",
     "rows/1/samples_per_s", NULL, 64},
    {"{\"schema\":\"trainyard.validation/1\",\"sources\":[{\"source\":\"s\",\"rows\":3,"
     "\"median_error\":0.125,\"p90_error\":null}]}",
     "sources/0/median_error", NULL, 0.125},
    {"{\"schema\":\"trainyard.score/1\",\"time_to_target_s\":{\"low\":60,\"expected\":90,"
     "\"high\":100},\"convergence_provenance\":\"prior\"}",
     "time_to_target_s/expected", NULL, 90},
    {"{\"schema\":\"trainyard.simulation/"
     "2\",\"timeline\":{},\"memory_over_time\":[{\"stage_replica\":3,"
     "\"time_s\":[0,2],\"bytes\":[1024,3072]}]}",
     "memory_over_time/0/bytes/1", NULL, 3072},
    {"{\"schema\":\"trainyard.simulation/1\",\"memory_over_time\":[{\"rank\":3,"
     "\"time_s\":[0,2],\"bytes\":[1024,3072]}]}",
     "memory_over_time/0/stage_replica", NULL, 3},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{\"target\":\"slurm\",\"next\":\"sbatch "
     "job.sh\",\"files\":[{\"name\":\"job.sh\",\"bytes\":90000,\"text\":\"#!/bin/sh\\nsrun "
     "<x>\"}]},{\"target\":\"horovod\",\"reason\":\"it has no <pipelines>\"}]}",
     "targets/1/reason", "it has no <pipelines>", 0},
    {"{\"schema\":\"trainyard.compression/1\",\"bandwidths_bytes_per_s\":[1e9,1e10],"
     "\"ring_bandwidth_bytes_per_s\":3e9,\"curves\":["
     "{\"compression\":\"fp16\",\"seconds\":[0.25,0.125]}]}",
     "curves/0/seconds/0", NULL, 0.25},
};

Test(documents, are_in_the_report)
{
    for (size_t i = 0; i < sizeof document_cases / sizeof document_cases[0]; i++) {
        const struct document_case *c = &document_cases[i];
        given g = give(c->text);
        ty_report_input in = report_of(&g);
        scene_page page = scene_page_of(&in);
        char path[96];

        snprintf(path, sizeof path, "documents/0/content/%s", c->path);
        if (c->shown != NULL)
            cr_expect_str_eq(scene_text(&page, path), c->shown, "case %zu", i);
        else
            cr_expect_eq(scene_number(&page, path), c->number, "case %zu", i);
        cr_expect_str_eq(scene_text(&page, "files/0/sha256"), g.document.digest.hex);
        cr_expect_null(scene_at(&page, "plan"));
        cr_expect_null(scene_at(&page, "documents/0/content/timeline"), "what no section shows");
        scene_page_clear(&page);
        ty_json_free(g.parsed);
    }
}

static const struct bad_document {
    const char *text, *message;
} bad_documents[] = {
    {"{\"schema\":\"trainyard.whatif/1\",\"rows\":[]}", "given.json:/vary"},
    {"{\"schema\":\"trainyard.whatif/1\",\"vary\":[{\"key\":\"a\",\"values\":[\"1\"]}],\"rows\":["
     "{\"values\":{\"a\":\"2\"},\"reason\":\"r\"}]}",
     "given.json:/rows/0/values"},
    {"{\"schema\":\"trainyard.whatif/1\",\"vary\":[{\"key\":\"a\",\"values\":[\"1\"]}],\"rows\":["
     "{\"values\":{\"a\":\"1\"},\"step_time_s\":-1}]}",
     "given.json:/rows/0/step_time_s"},
    {"{\"schema\":\"trainyard.validation/1\"}", "given.json:/sources"},
    {"{\"schema\":\"trainyard.simulation/2\",\"memory_over_time\":[{\"rank\":0,\"time_s\":[0],"
     "\"bytes\":[1,2]}]}",
     "given.json:/memory_over_time/0/bytes"},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{}]}", "given.json:/targets/0/target"},
    {"{\"schema\":\"trainyard.launch/1\",\"targets\":[{\"target\":\"a\",\"files\":[{\"name\":\"b\","
     "\"bytes\":-1}]}]}",
     "given.json:/targets/0/files/0/bytes"},
    {"{\"schema\":\"trainyard.compression/1\",\"bandwidths_bytes_per_s\":[1],\"curves\":["
     "{\"compression\":\"a\",\"seconds\":[1,2]}]}",
     "given.json:/curves/0/seconds"},
};

Test(documents, bad_ones_are_refused)
{
    for (size_t i = 0; i < sizeof bad_documents / sizeof bad_documents[0]; i++) {
        given g = give(bad_documents[i].text);
        ty_report_input in = report_of(&g);
        ty_text html = {0};
        ty_error error = {0};

        cr_expect_eq(ty_report_html(&in, &html, &error), TY_EPARSE, "case %zu", i);
        cr_expect(strstr(error.message, bad_documents[i].message) != NULL, "%s", error.message);
        cr_expect_eq(html.length, 0, "half a page");
        ty_text_clear(&html);
        ty_json_free(g.parsed);
    }
}

/* Without memory every document is refused with that reason, and no part of the page remains. */
Test(documents, survive_failing_allocations)
{
    for (size_t i = 0; i < sizeof document_cases / sizeof document_cases[0]; i++) {
        given g = give(document_cases[i].text);
        ty_report_input in = report_of(&g);
        ty_status status = TY_ENOMEM;
        long n;

        for (n = 1; status == TY_ENOMEM && n < 5000; n++) {
            ty_text html = {0};
            ty_error error = {0};
            ty_memory_fail_after(n);
            status = ty_report_html(&in, &html, &error);
            ty_memory_fail_after(0);
            cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n,
                      error.message);
            ty_text_clear(&html);
        }
        cr_expect_eq(status, TY_OK, "case %zu", i);
        cr_expect_gt(n, 3);
        ty_json_free(g.parsed);
    }
}

/* A complete report with interconnect and cost, with every allocation failing in turn. */
Test(network, survives_failing_allocations)
{
    scene s = scene_of("hybrid");
    ty_cluster *cluster = cluster_for(s.plan);
    ty_costs *costs = costs_for(&s);
    ty_timeline *timeline = NULL;
    ty_status status = TY_ENOMEM;
    given g = give("{\"schema\":\"trainyard.score/1\",\"price_usd_per_hour\":7.2,\"power_w\":{"
                   "\"low\":1,\"expected\":2,\"high\":3},\"notes\":[\"money: by the <hour>\"]}");
    long n;

    scene_predict(&s);
    timeline = scene_timeline(&s, 2, scene_two_ms);
    for (n = 1; status == TY_ENOMEM && n < 100000; n++) {
        ty_text html = {0};
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_report_html(&(ty_report_input){.plan = s.plan,
                                                   .program = s.program,
                                                   .simulated = timeline,
                                                   .cluster = cluster,
                                                   .costs = costs,
                                                   .documents = &g.document,
                                                   .document_count = 1},
                                &html, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        if (status == TY_OK) {
            cr_expect(strstr(html.data, "\"busiest\"") != NULL);
            cr_expect(strstr(html.data, "\"matrix\"") != NULL);
            cr_expect(strstr(html.data, "money: by the \\u003chour>") != NULL);
        }
        ty_text_clear(&html);
    }
    cr_expect_eq(status, TY_OK);
    ty_json_free(g.parsed);
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_cluster_free(cluster);
    scene_clear(&s);
}

/* Many hosts are drawn as levels: one vertex for each kind of their contents, and the links. */
Test(network, hosts_are_folded_into_levels)
{
    scene s = scene_of("hybrid");
    ty_cluster *cluster = NULL;
    ty_costs *costs = costs_for(&s);
    scene_page page;
    const ty_json *nodes;
    double devices = 0, hosts = 0;
    ty_error error = {0};

    scene_predict(&s);
    cr_assert_eq(ty_cluster_open("host:64 gpu:2 @h100-sxm nvlink4 ndr400", NULL, &cluster, &error),
                 TY_OK, "%s", error.message);
    page = scene_page_of(&(ty_report_input){
        .plan = s.plan, .program = s.program, .cluster = cluster, .costs = costs});
    nodes = scene_at(&page, "network/nodes");
    for (size_t i = 0; i < ty_json_size(nodes); i++) {
        const ty_json *node = ty_json_at(nodes, i);
        const char *kind;
        double members;
        cr_assert_eq(ty_json_as_string(ty_json_at(node, 1), &kind, NULL), TY_OK);
        cr_assert_eq(ty_json_as_number(ty_json_at(node, 3), 1, 1e9, &members, NULL), TY_OK);
        devices += strcmp(kind, "device") == 0 ? members : 0;
        hosts += strcmp(kind, "host") == 0 ? members : 0;
    }
    cr_expect_lt(ty_json_size(nodes), 20);
    cr_expect_eq(devices, 128);
    cr_expect_eq(hosts, 64);
    cr_expect_gt(ty_json_size(scene_at(&page, "network/links")), 1);
    scene_page_clear(&page);
    ty_costs_free(costs);
    ty_cluster_free(cluster);
    scene_clear(&s);
}
