/* PipeDream's profiles, graph.txt: a line per operator, then a line per edge.
 *
 *     node12 -- Conv2d(128, 256, kernel_size=(3, 3)) -- forward_compute_time=10.814, \
 *         backward_compute_time=18.335, activation_size=411041792.000, parameter_size=1180672.000
 *     	node11 -- node12
 *
 * Source: msr-fiddle/pipedream, graph/graph.py. Times are milliseconds and sizes bytes of one
 * mini-batch. The file omits its size, which divides every operator's number of outputs over
 * features, so it is their greatest common divisor. Sizes may be lists "[a; b]" for operators with
 * several outputs. */
#include "pipedream_text.h"
#include "traced_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct profile {
    ty_traced_graph graph;
    ty_import_source *source;
    uint64_t batch;
    uint64_t input_elements; /* per sample, of all nodes that read the batch */
    double load_ms;
} profile;

/* ---- Lines ----------------------------------------------------------------------------------- */

/* Stores times per mini-batch and output bytes as elements, until its size is known. */
static ty_status add_node(void *context, const ty_pipedream_node *from, ty_error *error)
{
    profile *p = context;
    ty_traced_node n = {.id = from->id, .name = from->name, .name_length = from->name_length};

    (void)error;
    n.output_elements = (uint64_t)ceil(from->activation_bytes / 4);
    n.known = (ty_opaque){.parameter_bytes = (uint64_t)from->parameter_bytes,
                          .measured_forward_s = from->forward_ms * 1e-3,
                          .measured_backward_s = from->backward_ms * 1e-3,
                          .is_timed = true};
    n.is_work = from->forward_ms > 0 || from->backward_ms > 0 || from->parameter_bytes > 0;
    return ty_traced_add_node(&p->graph, &n);
}

static ty_status add_edge(void *context, uint64_t from, uint64_t to, ty_error *error)
{
    profile *p = context;

    (void)error;
    return ty_traced_add_edge(&p->graph, from, to);
}

/* ---- Samples of a mini-batch ----------------------------------------------------------------- */

static const char *find_text(piece text, const char *word)
{
    for (; ty_piece_starts_with(text, word) || text.at < text.end; text.at++)
        if (ty_piece_starts_with(text, word))
            return text.at + strlen(word);
    return NULL;
}

static uint64_t leading_number(const char *at, const char *end)
{
    uint64_t value = 0;
    while (at < end && *at == ' ')
        at++;
    for (; at < end && *at >= '0' && *at <= '9' && value < 1000000000; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

/* The last dimension of an operator's output from its name, else 0. */
static uint64_t features_of(const ty_traced_node *n)
{
    const piece label = {n->name, n->name + n->name_length};
    const char *at = find_text(label, "out_features="), *comma;

    if (at != NULL && find_text((piece){at, label.end}, "out_features=") == NULL)
        return leading_number(at, label.end);
    if (!ty_piece_starts_with(label, "Conv2d(") && !ty_piece_starts_with(label, "Embedding("))
        return 0;
    comma = memchr(label.at, ',', n->name_length);
    return comma != NULL ? leading_number(comma + 1, label.end) : 0;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Whether the rows of an embedding are tokens of samples, not samples. */
static bool is_of_tokens(const profile *p, uint64_t rows)
{
    for (uint32_t i = 0; i < p->graph.node_count; i++) {
        const ty_traced_node *n = &p->graph.nodes[i];
        if (ty_piece_starts_with((piece){n->name, n->name + n->name_length}, "Embedding(") &&
            n->output_elements == rows * features_of(n))
            return true;
    }
    return false;
}

static ty_status find_batch(profile *p)
{
    const uint64_t sequence = p->source->options->sequence;
    uint64_t divisor = 0;

    for (uint32_t i = 0; i < p->graph.node_count; i++) {
        uint64_t features = features_of(&p->graph.nodes[i]);
        uint64_t numbers = p->graph.nodes[i].output_elements;
        if (features > 0 && numbers > 0 && numbers % features == 0)
            divisor = common_divisor(divisor, numbers / features);
    }
    p->batch = divisor > 0 && divisor <= UINT32_MAX ? divisor : 0;
    if (sequence > 0 && (p->batch == 0 || p->batch % sequence != 0))
        return ty_fail(
            p->source->error, TY_EINVAL,
            "%s: sequence: found %llu tokens a sample, expected a divisor of the %llu rows "
            "that all operators have",
            p->source->path, (unsigned long long)sequence, (unsigned long long)p->batch);
    if (sequence == 0 && p->batch > 1 && is_of_tokens(p, p->batch))
        return ty_fail(
            p->source->error, TY_EPARSE,
            "%s: found an Embedding of %llu rows, which may be samples or tokens, expected "
            "sequence=N behind the file: the tokens of a sample, 1 if rows are samples",
            p->source->path, (unsigned long long)p->batch);
    p->batch /= sequence > 0 ? sequence : 1;
    if (p->batch > 0) {
        ty_import_note(p->source,
                       "samples per mini-batch are taken to be %llu, which divides the outputs",
                       (unsigned long long)p->batch);
    } else if (p->source->options->batch > 0) {
        p->batch = p->source->options->batch;
    } else {
        p->batch = 1;
        ty_import_note(p->source,
                       "the mini-batch that was measured is taken as one sample, since no "
                       "operator tells its size; batch=N says it");
    }
    return TY_OK;
}

/* ---- The workload ---------------------------------------------------------------------------- */

static bool is_batch(const ty_traced_node *n)
{
    return ty_piece_starts_with((piece){n->name, n->name + n->name_length}, "Input") &&
           n->in_count == 0 && n->known.parameter_bytes == 0;
}

static uint64_t per_sample(const profile *p, uint64_t elements)
{
    return elements / p->batch + (elements % p->batch != 0);
}

/* The batch itself, and nodes with less than one number per sample, such as shapes, are no layers.
 */
static void settle(profile *p)
{
    uint64_t input_elements = 0;

    for (uint32_t i = 0; i < p->graph.node_count; i++) {
        ty_traced_node *n = &p->graph.nodes[i];
        if (is_batch(n)) {
            input_elements += n->output_elements;
            p->load_ms += n->known.measured_forward_s * 1e3;
        }
        n->is_passed_over = is_batch(n) || (!n->is_work && n->output_elements < p->batch);
        n->output_elements = per_sample(p, n->output_elements);
        n->known.measured_forward_s /= (double)p->batch;
        n->known.measured_backward_s /= (double)p->batch;
    }
    p->input_elements = per_sample(p, input_elements);
    if (p->load_ms > 0)
        ty_import_note(p->source, "%g ms of loading the batch are left out", p->load_ms);
    if (p->input_elements == 0)
        ty_import_note(p->source,
                       "the size of the batch is not in the file; 4 bytes a sample are assumed");
}

static ty_status build(profile *p, ty_workload **out)
{
    const ty_optimizer optimizer = {
        .kind = TY_OPTIMIZER_SGD, .learning_rate = 0.01, .momentum = 0.9};
    uint32_t global_batch =
        p->source->options->batch > 0 ? p->source->options->batch : (uint32_t)p->batch;
    ty_status status = TY_OK;
    ty_shape input = {1, {p->input_elements > 0 ? p->input_elements : 1}};
    ty_builder *b = NULL;
    char *name = NULL;

    TY_CHECK(ty_import_name(p->source, &name), status, cleanup);
    if (p->source->options->sequence > 1)
        input = (ty_shape){1, {p->source->options->sequence}};
    b = ty_builder_new(name, p->source->options->sequence > 1 ? TY_INPUT_TOKEN : TY_INPUT_REAL,
                       &input);
    ty_builder_set_source(b, "PipeDream profile (graph.txt): times of the device it was made on");
    ty_builder_set_training(b, "synthetic", global_batch, &optimizer);
    TY_CHECK(ty_traced_build(&p->graph, b), status, cleanup);
    status = ty_import_finish(p->source, b, out);
    b = NULL; /* finishing frees it */

cleanup:
    ty_builder_free(b);
    ty_free(name);
    return status;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    profile p = {.source = source,
                 .graph = {.source = source, .prefix = "node", .is_always_numbered = true}};
    const ty_pipedream_visitor visitor = {&p, add_node, add_edge};
    ty_status status = TY_OK;

    TY_CHECK(
        ty_pipedream_read(source->path, source->bytes, source->length, &visitor, source->error),
        status, cleanup);
    TY_CHECK(ty_traced_connect(&p.graph), status, cleanup);
    TY_CHECK(find_batch(&p), status, cleanup);
    settle(&p);
    status = build(&p, out);

cleanup:
    ty_traced_clear(&p.graph);
    return status;
}

static bool probe(ty_import_source *source)
{
    return ty_pipedream_probe(source->bytes, source->length);
}

const ty_import_format ty_import_pipedream = {"PipeDream graph.txt", probe, read, false};
