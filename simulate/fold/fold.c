/* Classes from colors, and the platform on which one of each is simulated. See fold.h. */
#include "fold_graph.h"

#include "ty_base.h"

#include <math.h>
#include <stdlib.h>

/* A flow with weight m on a link passes it m times; with more than this, every device is simulated
 * instead. */
enum { HEAVIEST = 4096 };

/* SimGrid searches a name zone by zone, and has a table of all pairs for each zone. */
enum { FLOWS_OF_A_ZONE = 64 };

struct ty_fold {
    ty_fold_graph graph;
    uint32_t class_count, flow_count, link_count;
    uint32_t *classes;     /* [rank] */
    uint32_t *firsts;      /* [class]: its first rank */
    uint32_t *flows;       /* [edge]: its class */
    uint32_t *first_edges; /* [flow] */
    ty_fold_flow *ways;    /* [flow] */
    double *bandwidths;    /* [link]: of its class, divided by the common divisor of its weights */
    uint64_t weight_count;
    ty_fold_weight *weights; /* by flow, then by link */
};

/* ---- Classes ------------------------------------------------------------------------------- */

typedef struct coloured {
    uint64_t colour;
    uint32_t index, class_index;
} coloured;

static int by_colour(const void *left, const void *right)
{
    const coloured *a = left, *b = right;
    if (a->colour != b->colour)
        return a->colour < b->colour ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Numbers classes in the order of their first members.
 * @param classes [out, count]  @param firsts [out] of each class, its first member */
static ty_status number_classes(const uint64_t *colours, uint32_t count, uint32_t **classes,
                                uint32_t **firsts, uint32_t *class_count, ty_error *error)
{
    ty_status status = TY_OK;
    coloured *sorted = ty_alloc(count, sizeof *sorted);
    uint32_t found = 0;

    *classes = ty_alloc(count, sizeof **classes);
    *firsts = ty_alloc(count, sizeof **firsts);
    TY_CHECK(ty_check_memory(sorted != NULL && *classes != NULL && *firsts != NULL, error), status,
             cleanup);
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = (coloured){colours[i], i, 0};
    qsort(sorted, count, sizeof *sorted, by_colour);
    /* The first of equal ones identifies the class until the classes are numbered. */
    for (uint32_t i = 0; i < count; i++)
        sorted[i].class_index = i > 0 && sorted[i].colour == sorted[i - 1].colour
                                    ? sorted[i - 1].class_index
                                    : sorted[i].index;
    for (uint32_t i = 0; i < count; i++)
        (*classes)[sorted[i].index] = sorted[i].class_index;
    for (uint32_t i = 0; i < count; i++) {
        if ((*classes)[i] == i)
            (*firsts)[found++] = i;
        (*classes)[i] = (*classes)[i] == i ? found - 1 : (*classes)[(*classes)[i]];
    }
    *class_count = found;
cleanup:
    ty_free(sorted);
    return status;
}

static ty_status find_classes(ty_fold *fold, ty_error *error)
{
    const ty_fold_graph *graph = &fold->graph;
    ty_status status;
    uint64_t *colours = ty_alloc(graph->edge_count, sizeof *colours);

    TY_TRY(ty_check_memory(colours != NULL, error));
    for (uint32_t e = 0; e < graph->edge_count; e++)
        colours[e] = graph->edges[e].colour;
    TY_CHECK(number_classes(graph->rank_colours, graph->rank_count, &fold->classes, &fold->firsts,
                            &fold->class_count, error),
             status, cleanup);
    TY_CHECK(number_classes(colours, graph->edge_count, &fold->flows, &fold->first_edges,
                            &fold->flow_count, error),
             status, cleanup);
    if ((fold->ways = ty_alloc(fold->flow_count, sizeof *fold->ways)) == NULL)
        status = out_of_memory(error);
    for (uint32_t f = 0; status == TY_OK && f < fold->flow_count; f++) {
        const ty_fold_edge *edge = &graph->edges[fold->first_edges[f]];
        fold->ways[f] = (ty_fold_flow){edge->latency_s, edge->bandwidth_bytes_per_s};
    }
cleanup:
    ty_free(colours);
    return status;
}

/* ---- Links --------------------------------------------------------------------------------- */

static int by_flow_and_link(const void *left, const void *right)
{
    const ty_fold_weight *a = left, *b = right;
    if (a->flow != b->flow)
        return a->flow < b->flow ? -1 : 1;
    return (a->link > b->link) - (a->link < b->link);
}

/* All passages of edges over the first link of each class, one entry each. */
static uint64_t list_passages(const ty_fold *fold, const uint32_t *classes, const uint32_t *firsts,
                              ty_fold_weight *out)
{
    uint64_t count = 0;

    for (uint32_t e = 0; e < fold->graph.edge_count; e++) {
        const ty_fold_edge *edge = &fold->graph.edges[e];
        for (uint32_t i = 0; i < edge->link_count; i++) {
            const uint32_t link = fold->graph.links[edge->first_link + i];
            if (firsts[classes[link]] != link)
                continue;
            if (out != NULL)
                out[count] = (ty_fold_weight){fold->flows[e], classes[link], 1};
            count++;
        }
    }
    return count;
}

/* Divides the weights on each link, and its bandwidth, by their common divisor. */
static ty_status reduce_weights(ty_fold *fold, const uint32_t *firsts, ty_error *error)
{
    uint32_t *divisors = ty_alloc(fold->link_count, sizeof *divisors);

    fold->bandwidths = ty_alloc(fold->link_count, sizeof *fold->bandwidths);
    if (divisors == NULL || fold->bandwidths == NULL) {
        ty_free(divisors);
        return out_of_memory(error);
    }
    for (uint64_t i = 0; i < fold->weight_count; i++) {
        uint32_t *divisor = &divisors[fold->weights[i].link];
        *divisor = (uint32_t)ty_greatest_divisor(fold->weights[i].count, *divisor);
    }
    for (uint64_t i = 0; i < fold->weight_count; i++)
        fold->weights[i].count /= divisors[fold->weights[i].link];
    for (uint32_t l = 0; l < fold->link_count; l++)
        if (divisors[l] > 0)
            fold->bandwidths[l] =
                ty_cluster_link(fold->graph.cluster, firsts[l] / 2)->bandwidth_bytes_per_s /
                divisors[l];
    ty_free(divisors);
    return TY_OK;
}

static ty_status find_links(ty_fold *fold, ty_error *error)
{
    ty_status status;
    uint32_t *classes = NULL, *firsts = NULL;

    TY_CHECK(number_classes(fold->graph.link_colours,
                            ty_cluster_link_count(fold->graph.cluster) * 2, &classes, &firsts,
                            &fold->link_count, error),
             status, cleanup);
    fold->weight_count = list_passages(fold, classes, firsts, NULL);
    TY_CHECK(
        ty_check_memory(
            (fold->weights = ty_alloc(fold->weight_count, sizeof *fold->weights)) != NULL, error),
        status, cleanup);
    list_passages(fold, classes, firsts, fold->weights);
    uint64_t merged = 0;
    qsort(fold->weights, fold->weight_count, sizeof *fold->weights, by_flow_and_link);
    for (uint64_t i = 0; i < fold->weight_count; i++) {
        if (merged > 0 && by_flow_and_link(&fold->weights[merged - 1], &fold->weights[i]) == 0)
            fold->weights[merged - 1].count++;
        else
            fold->weights[merged++] = fold->weights[i];
    }
    fold->weight_count = merged;
    status = reduce_weights(fold, firsts, error);
cleanup:
    ty_free(classes);
    ty_free(firsts);
    return status;
}

/* ---- Set-up -------------------------------------------------------------------------------- */

static bool shares_cores(const ty_costs *costs)
{
    for (uint32_t r = 0; r < costs->stage_replica_count; r++)
        if (isfinite(costs->host_cores[costs->replica_host[r]]))
            return true;
    return false;
}

/* Whether folding pays, and SimGrid can represent it. */
static bool is_smaller(const ty_fold *fold)
{
    for (uint64_t i = 0; i < fold->weight_count; i++)
        if (fold->weights[i].count > HEAVIEST)
            return false;
    return fold->class_count < fold->graph.rank_count || fold->flow_count < fold->graph.edge_count;
}

ty_status ty_fold_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                      const double *slowdowns, ty_fold **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_fold *fold;

    *out = NULL;
    if (shares_cores(costs))
        return TY_OK;
    TY_TRY(ty_check_memory((fold = ty_alloc(1, sizeof *fold)) != NULL, error));
    fold->graph = (ty_fold_graph){.plan = plan,
                                  .cluster = cluster,
                                  .parallel = parallel,
                                  .slowdowns = slowdowns,
                                  .error = error};
    TY_CHECK(ty_fold_graph_fill(&fold->graph, program), status, cleanup);
    TY_CHECK(ty_fold_graph_hush(&fold->graph), status, cleanup);
    TY_CHECK(ty_fold_graph_refine(&fold->graph), status, cleanup);
    TY_CHECK(find_classes(fold, error), status, cleanup);
    TY_CHECK(find_links(fold, error), status, cleanup);
    if (is_smaller(fold)) {
        *out = fold;
        fold = NULL;
    }
cleanup:
    ty_fold_free(fold);
    return status;
}

void ty_fold_free(ty_fold *fold)
{
    if (fold == NULL)
        return;
    ty_fold_graph_clear(&fold->graph);
    ty_free(fold->classes);
    ty_free(fold->firsts);
    ty_free(fold->flows);
    ty_free(fold->first_edges);
    ty_free(fold->ways);
    ty_free(fold->bandwidths);
    ty_free(fold->weights);
    ty_free(fold);
}

static bool position_reads(const ty_program *program, const ty_costs *costs, uint32_t pipeline_rank)
{
    for (uint32_t i = 0; i < program->stages[pipeline_rank].instruction_count; i++)
        if (program->stages[pipeline_rank].instructions[i].op == TY_OP_LOAD &&
            costs->instructions[pipeline_rank][i].edge_bytes > 0.0)
            return true;
    return false;
}

bool ty_fold_reads_alike(const ty_fold *fold, const ty_program *program, const ty_costs *costs)
{
    const uint32_t width = fold->graph.width;
    uint32_t reading = UINT32_MAX;

    for (uint32_t p = 0; p < program->stage_count; p++) {
        const uint32_t first = ty_plan_first_replica(fold->graph.plan, p) * width;
        if (!position_reads(program, costs, p))
            continue;
        for (uint32_t d = 0; d < fold->graph.plan->stages[p].replicas * width; d++) {
            if (reading == UINT32_MAX)
                reading = fold->classes[first];
            if (d == 0 && fold->firsts[reading] != first)
                return false; /* of another pipeline rank */
            if (fold->classes[first + d] != reading)
                return false;
        }
    }
    return true;
}

/* ---- Queries ------------------------------------------------------------------------------- */

uint32_t ty_fold_class_count(const ty_fold *fold)
{
    return fold->class_count;
}

const uint32_t *ty_fold_classes(const ty_fold *fold)
{
    return fold->classes;
}

uint32_t ty_fold_first(const ty_fold *fold, uint32_t class_index)
{
    return fold->firsts[class_index];
}

uint32_t ty_fold_flow_count(const ty_fold *fold)
{
    return fold->flow_count;
}

const ty_fold_flow *ty_fold_flow_of(const ty_fold *fold, uint32_t flow)
{
    return &fold->ways[flow];
}

static int compare_ways(const void *left, const void *right)
{
    const ty_fold_way *a = left, *b = right;

    if (a->strand != b->strand)
        return a->strand < b->strand ? -1 : 1;
    for (int l = 0; l < TY_MOST_LEGS; l++)
        if (a->flows[l] != b->flows[l])
            return a->flows[l] < b->flows[l] ? -1 : 1;
    return 0;
}

static int compare_ways_and_members(const void *left, const void *right)
{
    const ty_fold_way *a = left, *b = right;
    const int order = compare_ways(left, right);
    return order != 0 ? order : (a->member > b->member) - (a->member < b->member);
}

/* Each once. */
static uint32_t merge_ways(ty_fold_way *ways, uint32_t count)
{
    uint32_t kept = 0;

    qsort(ways, count, sizeof *ways, compare_ways_and_members);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || compare_ways(&ways[i], &ways[kept - 1]) != 0)
            ways[kept++] = ways[i];
    return kept;
}

uint32_t ty_fold_transfer(const ty_fold *fold, uint32_t rank, const ty_instruction *send)
{
    const ty_fold_graph *graph = &fold->graph;
    const uint32_t stage_replica = rank / graph->width;
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(graph->plan, stage_replica);
    const ty_fold_key *key =
        ty_fold_key_of(graph, pipeline_rank, send->peer_stage % graph->pipeline_size);

    if (key == NULL)
        return TY_NO_FLOW;
    const uint32_t replica = stage_replica - ty_plan_first_replica(graph->plan, pipeline_rank);
    const uint32_t place = replica * key->period + send->micro_batch % key->period;
    return fold->flows[key->first_edge + place * graph->width + rank % graph->width];
}

const ty_pattern_set *ty_fold_patterns(const ty_fold *fold)
{
    return &fold->graph.patterns;
}

/* One entry per member and strand of a group. */
static uint32_t list_ways(const ty_fold *fold, const ty_pattern *pattern, uint32_t side,
                          ty_fold_way *ways)
{
    static const ty_instruction_cost any = {.seconds = 1.0};
    uint32_t edge = ty_fold_group_of(&fold->graph, pattern, side)->first_edge, listed = 0;
    ty_strand strands[TY_MOST_STRANDS];

    for (uint32_t m = 0; m < pattern->member_count; m++) {
        const uint32_t count = ty_pattern_strands(pattern, m, &any, strands);
        for (uint32_t i = 0; i < count; i++) {
            ty_fold_way *way = &ways[listed++];
            *way = (ty_fold_way){m, i, {TY_NO_FLOW, TY_NO_FLOW, TY_NO_FLOW}};
            for (uint32_t l = 0; l < strands[i].count; l++, edge++)
                if (strands[i].legs[l].from != strands[i].legs[l].to)
                    way->flows[l] = fold->flows[edge];
        }
    }
    return listed;
}

ty_status ty_fold_exchange(const ty_fold *fold, const ty_pattern *pattern, uint32_t side,
                           ty_fold_way **ways, uint32_t *count, ty_error *error)
{
    const size_t most = *count + (size_t)pattern->member_count * TY_MOST_STRANDS;
    ty_fold_way *kept, *grown;

    if (pattern->is_quiet)
        return TY_OK;
    TY_TRY(ty_check_memory((grown = ty_resize(*ways, most, sizeof *grown)) != NULL, error));
    *ways = grown;
    *count = merge_ways(grown, *count + list_ways(fold, pattern, side, grown + *count));
    kept = ty_resize(grown, *count, sizeof *grown); /* a few of very many */
    *ways = kept != NULL ? kept : grown;
    return TY_OK;
}

const ty_fold_weight *ty_fold_weights(const ty_fold *fold, uint64_t *count)
{
    *count = fold->weight_count;
    return fold->weights;
}

const double *ty_fold_links(const ty_fold *fold, uint32_t *count)
{
    *count = fold->link_count;
    return fold->bandwidths;
}

/* ---- The platform -------------------------------------------------------------------------- */

void ty_fold_platform(const ty_fold *fold, ty_text *xml)
{
    uint64_t at = 0; /* the first weight of a flow */
    char number[32];

    ty_text_add(xml, "<?xml version=\"1.0\"?>\n"
                     "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                     "<platform version=\"4.1\">\n<zone id=\"cluster\" routing=\"None\">\n"
                     "  <zone id=\"links\" routing=\"Full\">\n"
                     "    <host id=\"anywhere\" speed=\"1f\"/>\n");
    for (uint32_t l = 0; l < fold->link_count; l++) {
        if (fold->bandwidths[l] <= 0.0) /* no flow uses it */
            continue;
        ty_format_number(fold->bandwidths[l], number);
        ty_text_addf(xml, "    <link id=\"link-%u\" bandwidth=\"%sBps\" latency=\"0s\"/>\n", l,
                     number);
    }
    ty_text_add(xml, "  </zone>\n");
    for (uint32_t first = 0; first < fold->flow_count; first += FLOWS_OF_A_ZONE) {
        const uint32_t left = fold->flow_count - first;
        const uint32_t end = first + (left < FLOWS_OF_A_ZONE ? left : FLOWS_OF_A_ZONE);
        ty_text_addf(xml, "  <zone id=\"flows-%u\" routing=\"Full\">\n", first);
        /* A link of its own limits the rate of a route's messages. */
        for (uint32_t f = first; f < end; f++)
            ty_text_addf(
                xml,
                "    <host id=\"from-%u\" speed=\"1f\"/><host id=\"to-%u\" speed=\"1f\"/>\n"
                "    <link id=\"way-%u\" bandwidth=\"1e18Bps\" latency=\"0s\" "
                "sharing_policy=\"FATPIPE\"/>\n",
                f, f, f);
        for (uint32_t f = first; f < end; f++) {
            ty_text_addf(xml,
                         "    <route src=\"from-%u\" dst=\"to-%u\" symmetrical=\"NO\">"
                         "<link_ctn id=\"way-%u\"/>",
                         f, f, f);
            for (; at < fold->weight_count && fold->weights[at].flow == f; at++)
                for (uint32_t n = 0; n < fold->weights[at].count; n++)
                    ty_text_addf(xml, "<link_ctn id=\"link-%u\"/>", fold->weights[at].link);
            ty_text_add(xml, "</route>\n");
        }
        ty_text_add(xml, "  </zone>\n");
    }
    ty_text_add(xml, "</zone>\n</platform>\n");
}
