/* A question from a workload and a cluster: the shape of the transformer, the levels of the
 * network, the device. */
#include "parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHAPE_LIMIT (1u << 26)
#define DEVICE_LIMIT (1u << 20)
#define BATCH_LIMIT (1u << 24)

/* ---- Shape of a workload --------------------------------------------------------------------- */

typedef struct reading {
    const ty_workload *workload;
    ty_layout_shape shape;
    uint32_t attentions, mlps, moes;
    const ty_layer *attention; /* the first one */
} reading;

static ty_status refuse(const reading *r, const ty_layer *l, const char *why, ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "workload %s: layer %s: %s; expected a stack of equal transformer layers",
                   r->workload->name, l->name, why);
}

/* Equal sizes everywhere, or the sum over layers would be wrong. */
static bool agree(uint32_t *known, uint64_t found)
{
    if (found > SHAPE_LIMIT || (*known != 0 && *known != found))
        return false;
    *known = (uint32_t)found;
    return true;
}

static ty_status read_embedding(reading *r, const ty_layer *l, ty_error *error)
{
    if (!agree(&r->shape.vocabulary, l->attributes[TY_VOCABULARY]) ||
        !agree(&r->shape.hidden, l->attributes[TY_FEATURES]))
        return refuse(r, l, "a second embedding", error);
    r->shape.positions += (uint32_t)(l->attributes[TY_POSITIONS] + l->attributes[TY_TOKEN_TYPES]);
    return TY_OK;
}

static ty_status read_attention(reading *r, const ty_layer *l, ty_error *error)
{
    ty_layout_shape *s = &r->shape;
    uint64_t heads = l->attributes[TY_HEADS];
    uint64_t size = l->attributes[TY_HEAD_SIZE];

    if (l->input_count != 1)
        return refuse(r, l, "attention to another sequence", error);
    if (!agree(&s->hidden, l->attributes[TY_FEATURES]) || !agree(&s->heads, heads) ||
        !agree(&s->kv_heads, l->attributes[TY_KV_HEADS] > 0 ? l->attributes[TY_KV_HEADS] : heads) ||
        !agree(&s->head_size, size > 0 ? size : l->attributes[TY_FEATURES] / heads))
        return refuse(r, l, "attention of another size", error);
    if (r->attention == NULL)
        r->attention = l;
    s->is_causal = l->attributes[TY_IS_CAUSAL] != 0;
    s->is_fused = l->attributes[TY_IS_FUSED] != 0;
    if (l->attributes[TY_KV_RANK] > 0)
        s->attention_parameters = (double)l->parameter_bytes / (double)r->workload->element_bytes;
    r->attentions++;
    return TY_OK;
}

static ty_status read_mlp(reading *r, const ty_layer *l, ty_error *error)
{
    if (!agree(&r->shape.ffn, l->attributes[TY_HIDDEN_FEATURES]))
        return refuse(r, l, "an mlp of another size", error);
    r->shape.is_gated = l->attributes[TY_IS_GATED] != 0;
    if (r->moes > 0)
        return refuse(r, l, "a dense mlp behind experts", error);
    r->mlps++;
    return TY_OK;
}

static ty_status read_moe(reading *r, const ty_layer *l, ty_error *error)
{
    ty_layout_shape *s = &r->shape;
    if (!agree(&s->experts, l->attributes[TY_EXPERTS]) ||
        !agree(&s->experts_per_token, l->attributes[TY_EXPERTS_PER_TOKEN]) ||
        !agree(&s->expert_ffn, l->attributes[TY_HIDDEN_FEATURES]))
        return refuse(r, l, "experts of another size", error);
    s->shared_ffn = (uint32_t)l->attributes[TY_SHARED_FEATURES];
    s->is_gated = l->attributes[TY_IS_GATED] != 0;
    r->moes++;
    return TY_OK;
}

static ty_status read_linear(reading *r, const ty_layer *l, ty_error *error)
{
    bool is_head = l->attributes[TY_OUT_FEATURES] == r->shape.vocabulary;
    bool is_small = l->attributes[TY_OUT_FEATURES] <= r->shape.hidden; /* a pooler, a classifier */
    if (!is_head && !is_small)
        return refuse(r, l, "a product between the layers", error);
    if (is_head)
        r->shape.is_tied = l->tied_to != TY_NO_LAYER;
    return TY_OK;
}

static ty_status read_layer(reading *r, const ty_layer *l, ty_error *error)
{
    static const ty_layer_kind passing[] = {TY_LAYER_LAYER_NORM, TY_LAYER_RMS_NORM,
                                            TY_LAYER_ADD,        TY_LAYER_GELU,
                                            TY_LAYER_RELU,       TY_LAYER_SILU,
                                            TY_LAYER_TANH,       TY_LAYER_SLICE,
                                            TY_LAYER_FLATTEN,    TY_LAYER_SOFTMAX_CROSS_ENTROPY};
    static const struct {
        ty_layer_kind kind;
        ty_status (*read)(reading *r, const ty_layer *l, ty_error *error);
    } readers[] = {{TY_LAYER_EMBEDDING, read_embedding},
                   {TY_LAYER_ATTENTION, read_attention},
                   {TY_LAYER_MLP, read_mlp},
                   {TY_LAYER_MOE, read_moe},
                   {TY_LAYER_LINEAR, read_linear}};

    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (readers[i].kind == l->kind)
            return readers[i].read(r, l, error);
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (passing[i] == l->kind)
            return TY_OK;
    return refuse(r, l, ty_layer_kind_name(l->kind), error);
}

ty_status ty_layout_shape_of(const ty_workload *workload, ty_layout_shape *out, ty_error *error)
{
    reading r = {.workload = workload};

    for (uint32_t i = 0; i < workload->layer_count; i++) {
        ty_status status = read_layer(&r, &workload->layers[i], error);
        if (status != TY_OK)
            return status;
    }
    if (r.attentions == 0 || r.mlps + r.moes != r.attentions || r.shape.vocabulary == 0 ||
        workload->tokens_per_sample == 0 || workload->tokens_per_sample > SHAPE_LIMIT)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "workload %s: found %u attentions, %u mlps, %u mixtures of experts and a "
                       "vocabulary of %u, expected an embedding and as many attentions as others",
                       workload->name, r.attentions, r.mlps, r.moes, r.shape.vocabulary);
    r.shape.layers = r.attentions;
    r.shape.dense_layers = r.moes > 0 ? r.mlps : 0;
    r.shape.sequence = (uint32_t)workload->tokens_per_sample;
    *out = r.shape;
    return TY_OK;
}

/* ---- Cluster and device ---------------------------------------------------------------------- */

ty_layout_device ty_layout_device_of(const ty_device_type *type)
{
    ty_layout_device d = {.peak_half_flop_per_s = type->peak_fp16_flop_per_s,
                          .peak_fp32_flop_per_s = type->peak_tf32_flop_per_s > 0
                                                      ? type->peak_tf32_flop_per_s
                                                      : type->peak_fp32_flop_per_s,
                          .memory_bandwidth_bytes_per_s = type->memory_bandwidth_bytes_per_s,
                          .memory_bytes = (double)type->memory_bytes};
    snprintf(d.name, sizeof d.name, "%s", type->name);
    return d;
}

static ty_status check_equal(const ty_cluster *cluster, ty_error *error)
{
    uint32_t devices = ty_cluster_device_count(cluster), hosts = ty_cluster_host_count(cluster);
    const ty_device_type *first = ty_cluster_device_type(cluster, 0);

    if (hosts == 0 || devices % hosts != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "cluster %s: found %u devices on %u hosts, expected equal hosts",
                       ty_cluster_name(cluster), devices, hosts);
    for (uint32_t i = 0; i < devices; i++) {
        const ty_device_type *type = ty_cluster_device_type(cluster, i);
        if (strcmp(type->name, first->name) != 0 ||
            ty_cluster_device_host(cluster, i) !=
                ty_cluster_device_host(cluster, 0) + i / (devices / hosts))
            return ty_fail(error, TY_EUNSUPPORTED,
                           "cluster %s: device %u is a %s of host %u, expected equal hosts of "
                           "equal devices, one after the other",
                           ty_cluster_name(cluster), i, type->name,
                           ty_cluster_device_host(cluster, i));
    }
    return TY_OK;
}

static ty_status inside(const ty_cluster *cluster, ty_layout_cluster *out, ty_error *error)
{
    ty_path path = {0};
    ty_status status;

    if (out->devices_per_host < 2)
        return TY_OK;
    status = ty_cluster_path(cluster, 0, 1, &path, error);
    if (status != TY_OK)
        return status;
    out->host_bandwidth_bytes_per_s = path.bandwidth_bytes_per_s;
    out->host_latency_s = path.latency_s;
    ty_path_clear(&path);
    return TY_OK;
}

enum { FLOW_LIMIT = 64 }; /* devices of a host */

/* What a host can send to the next one at once, and how much less all hosts can to each other. */
static ty_status outside(const ty_cluster *cluster, uint32_t hosts, ty_layout_cluster *out,
                         ty_error *error)
{
    uint32_t mine[FLOW_LIMIT], others[FLOW_LIMIT], count = out->devices_per_host;
    ty_status status = TY_OK;
    ty_path path = {0};
    double bisection;

    out->oversubscription = 1;
    if (hosts < 2)
        return TY_OK;
    if (count > FLOW_LIMIT)
        count = FLOW_LIMIT;
    for (uint32_t i = 0; i < count; i++) {
        mine[i] = i;
        others[i] = out->devices_per_host + i;
    }
    TY_CHECK(ty_cluster_flow(cluster, mine, count, others, count, &out->nic_bandwidth_bytes_per_s,
                             error),
             status, cleanup);
    TY_CHECK(ty_cluster_path(cluster, 0, out->devices_per_host, &path, error), status, cleanup);
    out->nic_latency_s = path.latency_s;
    TY_CHECK(ty_cluster_bisection(cluster, &bisection, error), status, cleanup);
    if (bisection > 0)
        out->oversubscription = fmax(1, (hosts / 2) * out->nic_bandwidth_bytes_per_s / bisection);

cleanup:
    ty_path_clear(&path);
    return status;
}

ty_status ty_layout_cluster_of(const ty_cluster *cluster, ty_layout_cluster *out, ty_error *error)
{
    uint32_t hosts = ty_cluster_host_count(cluster);
    ty_layout_cluster c = {.devices = ty_cluster_device_count(cluster)};
    ty_status status = check_equal(cluster, error);

    if (status != TY_OK)
        return status;
    c.devices_per_host = c.devices / hosts;
    TY_CHECK(inside(cluster, &c, error), status, cleanup);
    TY_CHECK(outside(cluster, hosts, &c, error), status, cleanup);
    *out = c;

cleanup:
    return status;
}

/* ---- The whole question ------------------------------------------------------------------------
 */

ty_status ty_layout_question_of(const ty_workload *workload, const ty_cluster *cluster,
                                uint32_t global_batch, ty_layout_question *out, ty_error *error)
{
    ty_layout_question q = {.global_batch =
                                global_batch > 0 ? global_batch : workload->global_batch,
                            .gradient_bytes = 4};
    ty_status status = TY_OK;

    TY_CHECK(ty_layout_shape_of(workload, &q.shape, error), status, cleanup);
    TY_CHECK(ty_layout_cluster_of(cluster, &q.cluster, error), status, cleanup);
    TY_CHECK(ty_layout_constants_load(NULL, &q.constants, error), status, cleanup);
    q.device = ty_layout_device_of(ty_cluster_device_type(cluster, 0));
    TY_CHECK(ty_layout_question_check(&q, error), status, cleanup);
    *out = q;

cleanup:
    return status;
}

/* ---- Checking
 * ------------------------------------------------------------------------------------ */

static void fill(ty_layout_shape *s)
{
    if (s->kv_heads == 0)
        s->kv_heads = s->heads;
    if (s->head_size == 0 && s->heads > 0)
        s->head_size = s->hidden / s->heads;
    if (s->ffn == 0)
        s->ffn = s->experts > 0 && s->dense_layers == 0 ? s->expert_ffn : 4 * s->hidden;
    if (!(s->attention_parameters > 0))
        s->attention_parameters = 2.0 * s->hidden * s->head_size * ((double)s->heads + s->kv_heads);
}

typedef struct range {
    const char *name;
    double value, minimum, maximum;
} range;

static ty_status check_ranges(const range *ranges, size_t count, ty_error *error)
{
    for (size_t i = 0; i < count; i++)
        if (!(ranges[i].value >= ranges[i].minimum && ranges[i].value <= ranges[i].maximum))
            return ty_fail(error, TY_EINVAL,
                           "layout question: %s: found %g, expected a number from %g to %g",
                           ranges[i].name, ranges[i].value, ranges[i].minimum, ranges[i].maximum);
    return TY_OK;
}

static ty_status check_shape(const ty_layout_shape *s, ty_error *error)
{
    const double most = SHAPE_LIMIT;
    const range ranges[] = {
        {"layers", s->layers, 1, 65536},
        {"hidden", s->hidden, 1, most},
        {"heads", s->heads, 1, 65536},
        {"kv_heads", s->kv_heads, 1, s->heads},
        {"head_size", s->head_size, 1, most},
        {"ffn", s->ffn, 1, most},
        {"vocabulary", s->vocabulary, 1, most},
        {"sequence", s->sequence, 1, most},
        {"experts", s->experts, 0, 65536},
        {"experts_per_token", s->experts_per_token, s->experts > 0 ? 1 : 0, s->experts},
        {"expert_ffn", s->expert_ffn, s->experts > 0 ? 1 : 0, most},
        {"shared_ffn", s->shared_ffn, 0, most},
        {"dense_layers", s->dense_layers, 0, s->layers},
        {"positions", s->positions, 0, most},
        {"attention_parameters", s->attention_parameters, 1, 1e15}};
    return check_ranges(ranges, sizeof ranges / sizeof *ranges, error);
}

static ty_status check_machine(const ty_layout_question *q, ty_error *error)
{
    const ty_layout_cluster *c = &q->cluster;
    const ty_layout_device *d = &q->device;
    bool has_host = c->devices_per_host > 1 && c->devices > 1;
    bool has_network = c->devices > c->devices_per_host;
    const range ranges[] = {
        {"devices", c->devices, 1, DEVICE_LIMIT},
        {"devices_per_host", c->devices_per_host, 1, DEVICE_LIMIT},
        {"host_bandwidth_bytes_per_s", c->host_bandwidth_bytes_per_s, has_host ? 1 : 0, 1e18},
        {"nic_bandwidth_bytes_per_s", c->nic_bandwidth_bytes_per_s, has_network ? 1 : 0, 1e18},
        {"oversubscription", c->oversubscription, 1, 1e6},
        {"peak_half_flop_per_s", d->peak_half_flop_per_s, 0, 1e21},
        {"peak_fp8_flop_per_s", d->peak_fp8_flop_per_s, 0, 1e21},
        {"peak_fp32_flop_per_s", d->peak_fp32_flop_per_s, 0, 1e21},
        {"memory_bandwidth_bytes_per_s", d->memory_bandwidth_bytes_per_s, 1, 1e18},
        {"memory_bytes", d->memory_bytes, 1, 1e18},
        {"global_batch", q->global_batch, 1, BATCH_LIMIT},
        {"gradient_bytes", q->gradient_bytes, 1, 8},
        {"matmul_efficiency", q->constants.matmul_efficiency, 1e-9, 1},
        {"memory_efficiency", q->constants.memory_efficiency, 1e-9, 1},
        {"host_bandwidth_efficiency", q->constants.host_bandwidth_efficiency, 1e-9, 1},
        {"nic_bandwidth_efficiency", q->constants.nic_bandwidth_efficiency, 1e-9, 1},
        {"send_bandwidth_efficiency", q->constants.send_bandwidth_efficiency, 1e-9, 1}};
    return check_ranges(ranges, sizeof ranges / sizeof *ranges, error);
}

ty_status ty_layout_question_check(ty_layout_question *question, ty_error *error)
{
    ty_status status = TY_OK;

    fill(&question->shape);
    TY_CHECK(check_shape(&question->shape, error), status, cleanup);
    TY_CHECK(check_machine(question, error), status, cleanup);

cleanup:
    return status;
}
