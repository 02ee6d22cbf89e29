/* PipeDream's profiles, graph.txt: a line per operator, then a line per edge.
 *
 *     node12 -- Conv2d(128, 256, kernel_size=(3, 3)) -- forward_compute_time=10.814, \
 *         backward_compute_time=18.335, activation_size=411041792.000, parameter_size=1180672.000
 *     	node11 -- node12
 *
 * Source: msr-fiddle/pipedream, graph/graph.py. Times are milliseconds and sizes bytes of one
 * mini-batch, whose size the file does not say: it divides every operator's outputs by features, so
 * the greatest common divisor of those is taken. Sizes may be lists "[a; b]" for operators of
 * several outputs. */
#include "traced_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 1e15
#define MOST_MS 1e12

typedef struct piece { /* of a line */
    const char *at, *end;
} piece;

typedef struct figures { /* of a line */
    double forward_ms, backward_ms, output_bytes, parameter_bytes;
} figures;

typedef struct profile {
    ty_traced_graph graph;
    ty_import_source *source;
    uint64_t batch;
    uint64_t input_elements; /* per sample, of all that read the batch */
    double load_ms;
} profile;

/* ---- Lines ----------------------------------------------------------------------------------- */

static piece trim(piece text)
{
    while (text.at < text.end && (*text.at == ' ' || *text.at == '\t'))
        text.at++;
    while (text.end > text.at && strchr(" \t\r", text.end[-1]) != NULL)
        text.end--;
    return text;
}

static ty_status bad_line(const profile *p, uint32_t line, piece found, const char *expected)
{
    int length = (int)(found.end - found.at < 80 ? found.end - found.at : 80);
    return ty_fail(p->source->error, TY_EPARSE, "%s:%u: found '%.*s', expected %s", p->source->path,
                   line, length, found.at, expected);
}

static bool starts_with(piece text, const char *word)
{
    size_t length = strlen(word);
    return (size_t)(text.end - text.at) >= length && memcmp(text.at, word, length) == 0;
}

/* The first or last " -- " in a piece; NULL if there is none. */
static const char *find_dashes(piece text, bool is_last)
{
    static const char dashes[] = " -- ";
    const char *found = NULL;
    for (const char *at = text.at; at + 4 <= text.end; at++)
        if (memcmp(at, dashes, 4) == 0) {
            found = at;
            if (!is_last)
                break;
        }
    return found;
}

static bool read_id(piece text, uint64_t *id)
{
    text = trim(text);
    if (!starts_with(text, "node") || text.end - text.at < 5 || text.end - text.at > 19)
        return false;
    *id = 0;
    for (const char *at = text.at + 4; at < text.end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        *id = *id * 10 + (uint64_t)(*at - '0');
    }
    return true;
}

/* A number at text->at, which moves behind it. */
static bool read_number(piece *text, double limit, double *out)
{
    char copy[40], *end;
    size_t length = 0;
    while (text->at + length < text->end && length + 1 < sizeof copy &&
           strchr("0123456789.eE+-", text->at[length]) != NULL)
        length++;
    memcpy(copy, text->at, length);
    copy[length] = '\0';
    *out = strtod(copy, &end);
    text->at += length;
    return length > 0 && *end == '\0' && *out >= 0 && *out <= limit;
}

/* A number or the sum of a list. */
static bool read_value(piece text, double limit, double *out)
{
    double value;

    text = trim(text);
    if (text.at == text.end || *text.at != '[')
        return read_number(&text, limit, out) && text.at == text.end;
    *out = 0;
    do {
        text.at++;
        text = trim(text);
        if (!read_number(&text, limit, &value))
            return false;
        *out += value;
        text = trim(text);
    } while (text.at < text.end && *text.at == ';');
    return text.end - text.at == 1 && *text.at == ']' && *out <= limit;
}

/* "forward_compute_time=1.5, ..." */
static ty_status read_figures(const profile *p, uint32_t line, piece text, figures *n)
{
    const struct {
        const char *key;
        double limit, *out;
    } rows[] = {{"forward_compute_time=", MOST_MS, &n->forward_ms},
                {"backward_compute_time=", MOST_MS, &n->backward_ms},
                {"activation_size=", MOST_BYTES, &n->output_bytes},
                {"parameter_size=", MOST_BYTES, &n->parameter_bytes}};
    unsigned seen = 0;

    while (text.at < text.end) {
        const char *comma = memchr(text.at, ',', (size_t)(text.end - text.at));
        piece item = trim((piece){text.at, comma != NULL ? comma : text.end});
        size_t i = 0;
        while (i < 4 && !starts_with(item, rows[i].key))
            i++;
        if (i == 4 || (seen & 1u << i) != 0 ||
            !read_value((piece){item.at + strlen(rows[i].key), item.end}, rows[i].limit,
                        rows[i].out))
            return bad_line(p, line, item,
                            "forward_compute_time, backward_compute_time, activation_size and "
                            "parameter_size, each once, as numbers >= 0");
        seen |= 1u << i;
        text.at = comma != NULL ? comma + 1 : text.end;
    }
    return seen == 15
               ? TY_OK
               : bad_line(p, line, text, "four figures: times, activation and parameter size");
}

/* Times are kept per mini-batch and output bytes as elements, until its size is known. */
static ty_status read_node(profile *p, uint32_t line, piece text)
{
    const char *first = find_dashes(text, false), *last = find_dashes(text, true);
    ty_status status = TY_OK;
    ty_traced_node n = {0};
    figures f = {0};
    piece label;

    if (first == NULL || first == last || !read_id((piece){text.at, first}, &n.id))
        return bad_line(p, line, text, "nodeN -- operator -- figures");
    TY_CHECK(read_figures(p, line, (piece){last + 4, text.end}, &f), status, cleanup);
    label = trim((piece){first + 4, last});
    n.name = label.at;
    n.name_length = (size_t)(label.end - label.at);
    n.output_elements = (uint64_t)ceil(f.output_bytes / 4);
    n.known = (ty_opaque){.parameter_bytes = (uint64_t)f.parameter_bytes,
                          .measured_forward_s = f.forward_ms * 1e-3,
                          .measured_backward_s = f.backward_ms * 1e-3,
                          .is_timed = true};
    n.is_work = f.forward_ms > 0 || f.backward_ms > 0 || f.parameter_bytes > 0;
    status = ty_traced_add_node(&p->graph, &n);

cleanup:
    return status;
}

static ty_status read_edge(profile *p, uint32_t line, piece text)
{
    const char *dashes = find_dashes(text, false);
    uint64_t from, to;

    if (dashes == NULL || !read_id((piece){text.at, dashes}, &from) ||
        !read_id((piece){dashes + 4, text.end}, &to))
        return bad_line(p, line, trim(text), "an edge: nodeA -- nodeB");
    return ty_traced_add_edge(&p->graph, from, to);
}

static ty_status read_lines(profile *p)
{
    const char *at = p->source->bytes, *end = at + p->source->length;
    ty_status status = TY_OK;

    for (uint32_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        piece text = {at, stop != NULL ? stop : end};
        piece content = trim(text);
        at = stop != NULL ? stop + 1 : end;
        if (content.at == content.end)
            continue;
        if (*text.at == '\t')
            TY_CHECK(read_edge(p, line, text), status, cleanup);
        else
            TY_CHECK(read_node(p, line, content), status, cleanup);
    }

cleanup:
    return status;
}

/* ---- What the samples are -------------------------------------------------------------------- */

static const char *find_text(piece text, const char *word)
{
    for (; starts_with(text, word) || text.at < text.end; text.at++)
        if (starts_with(text, word))
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

/* The last dimension of an operator's output where its name tells, else 0. */
static uint64_t features_of(const ty_traced_node *n)
{
    const piece label = {n->name, n->name + n->name_length};
    const char *at = find_text(label, "out_features="), *comma;

    if (at != NULL && find_text((piece){at, label.end}, "out_features=") == NULL)
        return leading_number(at, label.end);
    if (!starts_with(label, "Conv2d(") && !starts_with(label, "Embedding("))
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

static void find_batch(profile *p)
{
    uint64_t divisor = 0;

    for (uint32_t i = 0; i < p->graph.node_count; i++) {
        uint64_t features = features_of(&p->graph.nodes[i]);
        uint64_t numbers = p->graph.nodes[i].output_elements;
        if (features > 0 && numbers > 0 && numbers % features == 0)
            divisor = common_divisor(divisor, numbers / features);
    }
    p->batch = divisor > 0 && divisor <= UINT32_MAX ? divisor : 0;
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
}

/* ---- The workload ---------------------------------------------------------------------------- */

static bool is_batch(const ty_traced_node *n)
{
    return starts_with((piece){n->name, n->name + n->name_length}, "Input") && n->in_count == 0 &&
           n->known.parameter_bytes == 0;
}

static uint64_t per_sample(const profile *p, uint64_t elements)
{
    return elements / p->batch + (elements % p->batch != 0);
}

/* The batch itself, and what makes less than a number per sample, such as a shape, are no layers.
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
    ty_builder *b = NULL;
    char *name = NULL;

    TY_CHECK(ty_import_name(p->source, &name), status, cleanup);
    b = ty_builder_new(name, TY_INPUT_REAL,
                       &(ty_shape){1, {p->input_elements > 0 ? p->input_elements : 1}});
    ty_builder_set_source(b, "PipeDream profile (graph.txt): times of the device it was made on");
    ty_builder_set_training(b, "synthetic", global_batch, &optimizer);
    TY_CHECK(ty_traced_build(&p->graph, b), status, cleanup);
    status = ty_builder_finish(b, out, p->source->error);
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
    ty_status status = TY_OK;

    if (source->options->sequence != 0)
        return ty_fail(
            source->error, TY_EINVAL,
            "%s: found sequence=%llu, but a measured profile has the length it was made at",
            source->path, (unsigned long long)source->options->sequence);
    TY_CHECK(read_lines(&p), status, cleanup);
    TY_CHECK(ty_traced_connect(&p.graph), status, cleanup);
    find_batch(&p);
    settle(&p);
    status = build(&p, out);

cleanup:
    ty_traced_clear(&p.graph);
    return status;
}

/* The first line that is not empty: "nodeN -- ". */
static bool probe(ty_import_source *source)
{
    piece text = {source->bytes, source->bytes + source->length};
    const char *dashes;
    uint64_t id;

    while (text.at < text.end && strchr(" \t\r\n", *text.at) != NULL)
        text.at++;
    if (text.end - text.at > 40)
        text.end = text.at + 40;
    dashes = find_dashes(text, false);
    return dashes != NULL && read_id((piece){text.at, dashes}, &id);
}

const ty_import_format ty_import_pipedream = {"PipeDream graph.txt", probe, read, false};
