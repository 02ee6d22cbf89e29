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
#include "import.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NODES 200000
#define MOST_INPUTS 4000000 /* of all nodes together, once some are passed over */
#define MOST_BYTES 1e15
#define MOST_MS 1e12
#define NAME_LENGTH 100 /* of an operator in a layer's name */

typedef struct piece { /* of a line */
    const char *at, *end;
} piece;

typedef struct node {
    uint64_t id;
    piece label;
    double forward_ms, backward_ms, output_bytes, parameter_bytes;
    uint32_t missing;              /* predecessors not yet ordered */
    uint32_t first_in, in_count;   /* edges by reader */
    uint32_t first_out, out_count; /* edges by producer */
    uint32_t *inputs; /* nodes it reads, those passed over replaced by what they read */
    uint32_t input_count;
    bool is_kept;
    uint32_t layer; /* in the workload */
} node;

typedef struct edge {
    uint64_t from_id, to_id;
    uint32_t from, to; /* nodes */
} edge;

typedef struct profile {
    ty_import_source *source;
    node *nodes;
    edge *edges;
    uint32_t *by_reader, *by_producer; /* edges sorted */
    uint32_t *order;                   /* nodes */
    uint32_t node_count, node_capacity, edge_count, edge_capacity, input_count;
    uint64_t batch;
    double input_bytes; /* of all batches read */
    double load_ms;
} profile;

static ty_status fail_memory(const profile *p)
{
    return ty_fail(p->source->error, TY_ENOMEM, "%s: out of memory", p->source->path);
}

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
static ty_status read_figures(const profile *p, uint32_t line, piece text, node *n)
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

static ty_status grow(profile *p, void **list, uint32_t count, uint32_t *capacity, size_t size)
{
    void *grown;
    if (count < *capacity)
        return TY_OK;
    grown = ty_resize(*list, *capacity == 0 ? 64 : (size_t)*capacity * 2, size);
    if (grown == NULL)
        return fail_memory(p);
    *list = grown;
    *capacity = *capacity == 0 ? 64 : *capacity * 2;
    return TY_OK;
}

static ty_status read_node(profile *p, uint32_t line, piece text)
{
    const char *first = find_dashes(text, false), *last = find_dashes(text, true);
    ty_status status = TY_OK;
    void *list = p->nodes;
    node n = {0};

    if (first == NULL || first == last || !read_id((piece){text.at, first}, &n.id))
        return bad_line(p, line, text, "nodeN -- operator -- figures");
    n.label = trim((piece){first + 4, last});
    TY_CHECK(read_figures(p, line, (piece){last + 4, text.end}, &n), status, cleanup);
    if (p->node_count == MOST_NODES)
        return bad_line(p, line, text, "at most 200000 nodes");
    TY_CHECK(grow(p, &list, p->node_count, &p->node_capacity, sizeof n), status, cleanup);
    p->nodes = list;
    p->nodes[p->node_count++] = n;

cleanup:
    return status;
}

static ty_status read_edge(profile *p, uint32_t line, piece text)
{
    const char *dashes = find_dashes(text, false);
    ty_status status = TY_OK;
    void *list = p->edges;
    edge e = {0};

    if (dashes == NULL || !read_id((piece){text.at, dashes}, &e.from_id) ||
        !read_id((piece){dashes + 4, text.end}, &e.to_id))
        return bad_line(p, line, trim(text), "an edge: nodeA -- nodeB");
    if (p->edge_count == MOST_INPUTS)
        return bad_line(p, line, text, "at most 4000000 edges");
    TY_CHECK(grow(p, &list, p->edge_count, &p->edge_capacity, sizeof e), status, cleanup);
    p->edges = list;
    p->edges[p->edge_count++] = e;

cleanup:
    return status;
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

/* ---- The graph ------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const node *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static ty_status find_node(const profile *p, uint64_t id, uint32_t *out)
{
    const node key = {.id = id};
    const node *found =
        p->node_count == 0 ? NULL : bsearch(&key, p->nodes, p->node_count, sizeof key, by_id);
    if (found == NULL)
        return ty_fail(p->source->error, TY_EPARSE,
                       "%s: found an edge of node%llu, which has no line", p->source->path,
                       (unsigned long long)id);
    *out = (uint32_t)(found - p->nodes);
    return TY_OK;
}

static ty_status connect(profile *p)
{
    ty_status status = TY_OK;

    if (p->node_count == 0)
        return ty_fail(p->source->error, TY_EPARSE, "%s: found no nodes", p->source->path);
    qsort(p->nodes, p->node_count, sizeof *p->nodes, by_id);
    for (uint32_t i = 1; i < p->node_count; i++)
        if (p->nodes[i - 1].id == p->nodes[i].id)
            return ty_fail(p->source->error, TY_EPARSE, "%s: found node%llu twice", p->source->path,
                           (unsigned long long)p->nodes[i].id);
    for (uint32_t i = 0; i < p->edge_count; i++) {
        edge *e = &p->edges[i];
        TY_CHECK(find_node(p, e->from_id, &e->from), status, cleanup);
        TY_CHECK(find_node(p, e->to_id, &e->to), status, cleanup);
        p->nodes[e->from].out_count++;
        p->nodes[e->to].in_count++;
    }

cleanup:
    return status;
}

/* Edges grouped by either end: counting sort, stable. */
static ty_status group_edges(profile *p)
{
    uint32_t in = 0, out = 0;

    p->by_reader = ty_alloc(p->edge_count, sizeof *p->by_reader);
    p->by_producer = ty_alloc(p->edge_count, sizeof *p->by_producer);
    if (p->by_reader == NULL || p->by_producer == NULL)
        return fail_memory(p);
    for (uint32_t i = 0; i < p->node_count; i++) {
        node *n = &p->nodes[i];
        n->first_in = in;
        n->first_out = out;
        in += n->in_count;
        out += n->out_count;
        n->missing = n->in_count;
        n->in_count = n->out_count = 0;
    }
    for (uint32_t i = 0; i < p->edge_count; i++) {
        node *from = &p->nodes[p->edges[i].from], *to = &p->nodes[p->edges[i].to];
        p->by_producer[from->first_out + from->out_count++] = i;
        p->by_reader[to->first_in + to->in_count++] = i;
    }
    return TY_OK;
}

/* A heap of nodes, smallest first: numbers follow the order of execution. */
static void heap_push(uint32_t *heap, uint32_t *count, uint32_t value)
{
    uint32_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t *count)
{
    uint32_t top = heap[0], last = heap[--*count], at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (child >= *count || heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static ty_status sort_topologically(profile *p)
{
    ty_status status = TY_OK;
    uint32_t *heap = ty_alloc(p->node_count, sizeof *heap), waiting = 0, done = 0;

    p->order = ty_alloc(p->node_count, sizeof *p->order);
    if (heap == NULL || p->order == NULL) {
        status = fail_memory(p);
        goto cleanup;
    }
    for (uint32_t i = 0; i < p->node_count; i++)
        if (p->nodes[i].missing == 0)
            heap_push(heap, &waiting, i);
    while (waiting > 0) {
        uint32_t i = heap_pop(heap, &waiting);
        const node *n = &p->nodes[i];
        p->order[done++] = i;
        for (uint32_t k = 0; k < n->out_count; k++) {
            uint32_t reader = p->edges[p->by_producer[n->first_out + k]].to;
            if (--p->nodes[reader].missing == 0)
                heap_push(heap, &waiting, reader);
        }
    }
    for (uint32_t i = 0; i < p->node_count && done < p->node_count; i++)
        if (p->nodes[i].missing > 0) {
            status = ty_fail(p->source->error, TY_EPARSE,
                             "%s: found a cycle that node%llu is on or behind", p->source->path,
                             (unsigned long long)p->nodes[i].id);
            goto cleanup;
        }

cleanup:
    ty_free(heap);
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
static uint64_t features_of(const node *n)
{
    const char *at = find_text(n->label, "out_features="), *comma;

    if (at != NULL && find_text((piece){at, n->label.end}, "out_features=") == NULL)
        return leading_number(at, n->label.end);
    if (!starts_with(n->label, "Conv2d(") && !starts_with(n->label, "Embedding("))
        return 0;
    comma = memchr(n->label.at, ',', (size_t)(n->label.end - n->label.at));
    return comma != NULL ? leading_number(comma + 1, n->label.end) : 0;
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

    for (uint32_t i = 0; i < p->node_count; i++) {
        uint64_t features = features_of(&p->nodes[i]);
        uint64_t numbers = (uint64_t)(p->nodes[i].output_bytes / 4);
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

/* ---- Nodes that stay ------------------------------------------------------------------------- */

static bool has_work(const node *n)
{
    return n->forward_ms > 0 || n->backward_ms > 0 || n->parameter_bytes > 0;
}

static bool is_batch(const node *n)
{
    return starts_with(n->label, "Input") && n->in_count == 0 && n->parameter_bytes <= 0;
}

/* The batch itself, and what makes less than a number per sample, such as a shape: those who read
 * it read what it read. */
static bool is_passed_over(const profile *p, const node *n)
{
    return is_batch(n) || (!has_work(n) && n->output_bytes < 4 * (double)p->batch);
}

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static ty_status gather_inputs(profile *p, node *n)
{
    uint32_t count = 0, kept = 0;

    for (uint32_t k = 0; k < n->in_count; k++) {
        const node *from = &p->nodes[p->edges[p->by_reader[n->first_in + k]].from];
        count += is_passed_over(p, from) ? from->input_count : 1;
        if (count > MOST_INPUTS - p->input_count)
            return ty_fail(p->source->error, TY_EPARSE, "%s: found more than %d inputs of layers",
                           p->source->path, MOST_INPUTS);
    }
    p->input_count += count;
    n->inputs = ty_alloc(count, sizeof *n->inputs);
    if (n->inputs == NULL)
        return fail_memory(p);
    for (uint32_t k = 0; k < n->in_count; k++) {
        uint32_t producer = p->edges[p->by_reader[n->first_in + k]].from;
        const node *from = &p->nodes[producer];
        if (!is_passed_over(p, from)) {
            n->inputs[n->input_count++] = producer;
            continue;
        }
        if (from->input_count > 0)
            memcpy(n->inputs + n->input_count, from->inputs,
                   from->input_count * sizeof *from->inputs);
        n->input_count += from->input_count;
    }
    qsort(n->inputs, n->input_count, sizeof *n->inputs, ascending);
    for (uint32_t i = 0; i < n->input_count; i++)
        if (i == 0 || n->inputs[i] != n->inputs[i - 1])
            n->inputs[kept++] = n->inputs[i];
    n->input_count = kept;
    return TY_OK;
}

static ty_status settle(profile *p)
{
    ty_status status = TY_OK;
    uint32_t kept = 0, unread = 0;

    for (uint32_t i = 0; i < p->node_count; i++) {
        node *n = &p->nodes[p->order[i]];
        TY_CHECK(gather_inputs(p, n), status, cleanup);
        if (is_batch(n)) {
            p->input_bytes += n->output_bytes;
            p->load_ms += n->forward_ms;
        }
    }
    for (uint32_t i = p->node_count; i-- > 0;) {
        node *n = &p->nodes[p->order[i]];
        if (is_passed_over(p, n))
            continue;
        n->is_kept = n->is_kept || has_work(n);
        kept += n->is_kept;
        unread += !n->is_kept;
        for (uint32_t k = 0; n->is_kept && k < n->input_count; k++)
            p->nodes[n->inputs[k]].is_kept = true;
    }
    if (kept == 0)
        status = ty_fail(p->source->error, TY_EPARSE,
                         "%s: found no operator with a time or parameters", p->source->path);
    if (unread > 0)
        ty_import_note(p->source, "%u outputs that nothing reads are left out", unread);
    if (p->load_ms > 0)
        ty_import_note(p->source, "%g ms of loading the batch are left out", p->load_ms);

cleanup:
    return status;
}

/* ---- The workload ---------------------------------------------------------------------------- */

static uint64_t elements_per_sample(const profile *p, double bytes)
{
    double elements = ceil(bytes / 4 / (double)p->batch);
    return elements >= 1 ? (uint64_t)elements : 1;
}

/* "node12 Conv2d(128, 256, ...)", in plain characters. */
static void name_layer(ty_builder *b, const node *n)
{
    char name[NAME_LENGTH + 40];
    size_t length = (size_t)(n->label.end - n->label.at), at;

    at = (size_t)snprintf(name, sizeof name, "node%llu ", (unsigned long long)n->id);
    for (size_t i = 0; i < length && i < NAME_LENGTH; i++)
        name[at++] = n->label.at[i] >= ' ' && n->label.at[i] <= '~' ? n->label.at[i] : '?';
    name[at] = '\0';
    ty_builder_name_next(b, name);
}

static ty_status append(const profile *p, ty_builder *b, node *n)
{
    uint32_t batch[] = {TY_BATCH};
    uint32_t *inputs = ty_alloc(n->input_count, sizeof *inputs);
    ty_opaque known = {
        .output = {1, {elements_per_sample(p, n->output_bytes)}},
        .parameter_bytes = (uint64_t)n->parameter_bytes,
        .measured_forward_s = n->forward_ms * 1e-3 / (double)p->batch,
        .measured_backward_s = n->backward_ms * 1e-3 / (double)p->batch,
        .is_timed = true,
    };

    if (inputs == NULL)
        return fail_memory(p);
    for (uint32_t i = 0; i < n->input_count; i++)
        inputs[i] = p->nodes[n->inputs[i]].layer;
    name_layer(b, n);
    n->layer = n->input_count > 0 ? ty_builder_opaque(b, inputs, n->input_count, &known)
                                  : ty_builder_opaque(b, batch, 1, &known);
    ty_free(inputs);
    return TY_OK;
}

/* Several ends, such as auxiliary heads, meet in one. */
static ty_status join_ends(const profile *p, ty_builder *b)
{
    uint32_t *ends = ty_alloc(p->node_count, sizeof *ends), count = 0;
    bool *is_read = ty_alloc(p->node_count, sizeof *is_read);
    const ty_opaque nothing = {.output = {1, {1}}, .is_timed = true};
    ty_status status = TY_OK;

    if (ends == NULL || is_read == NULL) {
        status = fail_memory(p);
        goto cleanup;
    }
    for (uint32_t i = 0; i < p->node_count; i++)
        for (uint32_t k = 0; p->nodes[i].is_kept && k < p->nodes[i].input_count; k++)
            is_read[p->nodes[i].inputs[k]] = true;
    for (uint32_t i = 0; i < p->node_count; i++)
        if (p->nodes[i].is_kept && !is_read[i])
            ends[count++] = p->nodes[i].layer;
    if (count > 1) {
        ty_import_note(p->source, "%u ends are joined by a layer of no cost", count);
        ty_builder_name_next(b, "end");
        ty_builder_opaque(b, ends, count, &nothing);
    }

cleanup:
    ty_free(ends);
    ty_free(is_read);
    return status;
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
                       &(ty_shape){1, {elements_per_sample(p, p->input_bytes)}});
    ty_builder_set_source(b, "PipeDream profile (graph.txt): times of the device it was made on");
    ty_builder_set_training(b, "synthetic", global_batch, &optimizer);
    if (p->input_bytes <= 0)
        ty_import_note(p->source,
                       "the size of the batch is not in the file; 4 bytes a sample are assumed");
    for (uint32_t i = 0; i < p->node_count; i++)
        if (p->nodes[p->order[i]].is_kept)
            TY_CHECK(append(p, b, &p->nodes[p->order[i]]), status, cleanup);
    TY_CHECK(join_ends(p, b), status, cleanup);
    status = ty_builder_finish(b, out, p->source->error);
    b = NULL; /* finishing frees it */

cleanup:
    ty_builder_free(b);
    ty_free(name);
    return status;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    profile p = {.source = source};
    ty_status status = TY_OK;

    if (source->options->sequence != 0)
        return ty_fail(
            source->error, TY_EINVAL,
            "%s: found sequence=%llu, but a measured profile has the length it was made at",
            source->path, (unsigned long long)source->options->sequence);
    TY_CHECK(read_lines(&p), status, cleanup);
    TY_CHECK(connect(&p), status, cleanup);
    TY_CHECK(group_edges(&p), status, cleanup);
    TY_CHECK(sort_topologically(&p), status, cleanup);
    find_batch(&p);
    TY_CHECK(settle(&p), status, cleanup);
    status = build(&p, out);

cleanup:
    for (uint32_t i = 0; i < p.node_count; i++)
        ty_free(p.nodes[i].inputs);
    ty_free(p.nodes);
    ty_free(p.edges);
    ty_free(p.by_reader);
    ty_free(p.by_producer);
    ty_free(p.order);
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

const ty_import_format ty_import_pipedream = {"PipeDream graph.txt", probe, read};
