/* Chakra execution traces, as length-prefixed messages (.et) and as JSON. Compute nodes become
 * opaque layers in the trace's order. Ignores communication, which follows from the plan.
 *
 * In a trace with nodes of both host and device, only the device's count. Nodes of a converted
 * trace are those of one step, forward and backward, so a sample is one step of one rank. Integers
 * come in all of protobuf's variants; durations are microseconds.
 *
 * An unchanged trace from Trainyard contains the workload, which is read instead. */
#include "chakra.h"

#include <math.h>
#include <string.h>

typedef struct facts { /* of a node, in addition to the graph's */
    uint32_t type;
    double duration_us, operations, tensor_bytes, communication_bytes;
    double forward_s, backward_s, forward_flop, backward_flop; /* NAN: not specified */
    double parameter_bytes, output_elements;
    bool is_host, is_part, is_timed, is_view, has_kind; /* has_kind: is_timed was specified */
} facts;

typedef struct trace {
    ty_traced_graph graph;
    ty_import_source *source;
    ty_wire name, origin;  /* of the workload, if Trainyard wrote the trace */
    ty_wire whole, digest; /* the workload as JSON, and the digest of its nodes */
    bool is_ours;          /* the digest matches */
    double global_batch, input_elements;
    bool has_device;
    uint64_t counts[TY_CHAKRA_TYPE_COUNT];
    double communication_bytes;
} trace;

/* ---- Layers from nodes ----------------------------------------------------------------------- */

static double said(double value, double otherwise)
{
    return isnan(value) ? otherwise : value;
}

static uint64_t whole(double value)
{
    return value >= 0 && value <= 9007199254740992.0 ? (uint64_t)value : 0;
}

static double amount(double value)
{
    return value >= 0 && value < 1e30 ? value : 0;
}

/* Only after all nodes is it known whether the trace has nodes of a device. */
static ty_status add_node(trace *t, uint64_t id, const char *name, size_t length, const facts *f)
{
    uint32_t type = f->type < TY_CHAKRA_TYPE_COUNT ? f->type : 0;
    bool is_compute = type == TY_CHAKRA_COMPUTE && !f->is_part;
    ty_traced_node n = {.id = id, .name = name, .name_length = length};

    t->counts[type]++;
    if (type >= TY_CHAKRA_SEND && type <= TY_CHAKRA_COLLECTIVE && !f->is_part)
        t->communication_bytes += amount(f->communication_bytes);
    t->has_device = t->has_device || (is_compute && !f->is_host);
    n.output_elements = whole(said(f->output_elements, ceil(amount(f->tensor_bytes) / 4)));
    n.known = (ty_opaque){
        .parameter_bytes = whole(f->parameter_bytes),
        .forward_flop = amount(said(f->forward_flop, f->operations)),
        .backward_flop = amount(said(f->backward_flop, 0)),
        .measured_forward_s = amount(said(f->forward_s, f->duration_us * 1e-6)),
        .measured_backward_s = amount(said(f->backward_s, 0)),
        .is_view = f->is_view,
        .is_timed = f->has_kind ? f->is_timed : f->duration_us > 0 || !(f->operations > 0),
    };
    n.is_work = is_compute;
    n.is_passed_over = !is_compute;
    n.is_host = f->is_host;
    return ty_traced_add_node(&t->graph, &n);
}

static const facts nothing_said = {.forward_s = NAN,
                                   .backward_s = NAN,
                                   .forward_flop = NAN,
                                   .backward_flop = NAN,
                                   .output_elements = NAN};

/* ---- Messages -------------------------------------------------------------------------------- */

/* A number of any variant; the field identifies signed ones in zigzag form. */
static double attribute_value(const ty_wire_field *f)
{
    if (f->number == 15 || f->number == 17)
        return (double)(int64_t)(f->value >> 1 ^ (0 - (f->value & 1)));
    if (f->number == 11 || f->number == 13 || f->number == TY_CHAKRA_BOOL)
        return (double)f->value;
    if (f->number == 19 || f->number == 21)
        return (double)f->value;
    if (f->number == 23)
        return (double)(int32_t)(uint32_t)f->value;
    if (f->number == 25)
        return (double)(int64_t)f->value;
    return ty_wire_number(f);
}

typedef struct attribute {
    ty_wire name, text;
    double number; /* NAN if it is no number */
} attribute;

static bool read_attribute(ty_wire message, attribute *out)
{
    ty_wire_field f;

    *out = (attribute){.name = ty_wire_of("", 0), .text = ty_wire_of("", 0), .number = NAN};
    while (ty_wire_next(&message, &f)) {
        if (f.number == TY_CHAKRA_ATTRIBUTE_NAME && f.type == TY_WIRE_BYTES)
            out->name = f.bytes;
        else if (f.type == TY_WIRE_BYTES && f.number == TY_CHAKRA_STRING)
            out->text = f.bytes;
        else if (f.type != TY_WIRE_BYTES && f.number > 2)
            out->number = attribute_value(&f);
    }
    return !message.is_broken;
}

static void take_attribute(facts *f, const attribute *a)
{
    const struct {
        const char *name;
        double *number;
        bool *flag;
    } rows[] = {
        {"num_ops", &f->operations, NULL},
        {"tensor_size", &f->tensor_bytes, NULL},
        {"comm_size", &f->communication_bytes, NULL},
        {"is_cpu_op", NULL, &f->is_host},
        {TY_CHAKRA_PART_OF, NULL, &f->is_part},
        {TY_CHAKRA_IS_TIMED, NULL, &f->is_timed},
        {TY_CHAKRA_IS_VIEW, NULL, &f->is_view},
        {TY_CHAKRA_FORWARD_S, &f->forward_s, NULL},
        {TY_CHAKRA_BACKWARD_S, &f->backward_s, NULL},
        {TY_CHAKRA_FORWARD_FLOP, &f->forward_flop, NULL},
        {TY_CHAKRA_BACKWARD_FLOP, &f->backward_flop, NULL},
        {TY_CHAKRA_PARAMETER_BYTES, &f->parameter_bytes, NULL},
        {TY_CHAKRA_OUTPUT_ELEMENTS, &f->output_elements, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!ty_wire_is(&a->name, rows[i].name) || isnan(a->number))
            continue;
        if (rows[i].number != NULL)
            *rows[i].number = a->number;
        else
            *rows[i].flag = a->number != 0;
        f->has_kind = f->has_kind || rows[i].flag == &f->is_timed;
    }
    if (ty_wire_is(&a->name, TY_CHAKRA_PART_OF))
        f->is_part = true;
}

static ty_status fail_broken(const trace *t, const uint8_t *at)
{
    return ty_fail(t->source->error, TY_EPARSE,
                   "%s: byte %zu: found a broken or cut-off message, expected a node of Chakra",
                   t->source->path, (size_t)((const char *)at - t->source->bytes));
}

static ty_status add_edges(trace *t, ty_wire_field *f, uint64_t id)
{
    if (f->type != TY_WIRE_BYTES)
        return ty_traced_add_edge(&t->graph, f->value, id);
    while (f->bytes.at < f->bytes.end) {
        uint64_t from = ty_wire_varint(&f->bytes);
        if (f->bytes.is_broken)
            return fail_broken(t, f->bytes.at);
        TY_TRY(ty_traced_add_edge(&t->graph, from, id));
    }
    return TY_OK;
}

static ty_status read_node(trace *t, ty_wire message)
{
    ty_wire wire = message, name = ty_wire_of("", 0);
    facts facts_of = nothing_said;
    uint64_t id = 0;
    attribute a;
    ty_wire_field f;

    while (ty_wire_next(&wire, &f)) {
        if (f.number == TY_CHAKRA_ID)
            id = f.value;
        else if (f.number == TY_CHAKRA_NAME && f.type == TY_WIRE_BYTES)
            name = f.bytes;
        else if (f.number == TY_CHAKRA_TYPE)
            facts_of.type = (uint32_t)f.value;
        else if (f.number == TY_CHAKRA_DURATION)
            facts_of.duration_us = (double)f.value;
        else if (f.number == TY_CHAKRA_ATTRIBUTE && f.type == TY_WIRE_BYTES) {
            if (!read_attribute(f.bytes, &a))
                return fail_broken(t, f.bytes.at);
            take_attribute(&facts_of, &a);
        }
    }
    if (wire.is_broken)
        return fail_broken(t, wire.at);
    TY_TRY(add_node(t, id, (const char *)name.at, ty_wire_length(&name), &facts_of));
    while (ty_wire_next(&message, &f))
        if (f.number == TY_CHAKRA_CONTROL || f.number == TY_CHAKRA_DATA)
            TY_TRY(add_edges(t, &f, id));
    return TY_OK;
}

static ty_status read_metadata(trace *t, ty_wire message)
{
    ty_wire_field f;
    attribute a;

    while (ty_wire_next(&message, &f)) {
        if (f.number != TY_CHAKRA_METADATA_ATTRIBUTE || f.type != TY_WIRE_BYTES ||
            !read_attribute(f.bytes, &a))
            continue;
        if (ty_wire_is(&a.name, TY_CHAKRA_WORKLOAD))
            t->name = a.text;
        else if (ty_wire_is(&a.name, TY_CHAKRA_SOURCE))
            t->origin = a.text;
        else if (ty_wire_is(&a.name, TY_CHAKRA_WHOLE))
            t->whole = a.text;
        else if (ty_wire_is(&a.name, TY_CHAKRA_NODES))
            t->digest = a.text;
        else if (ty_wire_is(&a.name, TY_CHAKRA_GLOBAL_BATCH))
            t->global_batch = amount(a.number);
        else if (ty_wire_is(&a.name, TY_CHAKRA_INPUT_ELEMENTS))
            t->input_elements = amount(a.number);
    }
    return message.is_broken ? fail_broken(t, message.at) : TY_OK;
}

/* The next length-prefixed message; false at the end and on errors. */
static bool next_message(ty_wire *file, ty_wire *message)
{
    uint64_t length;

    if (file->at == file->end || file->is_broken)
        return false;
    length = ty_wire_varint(file);
    if (file->is_broken || length > ty_wire_length(file)) {
        file->is_broken = true;
        return false;
    }
    *message = ty_wire_of(file->at, (size_t)length);
    file->at += length;
    return true;
}

static bool has_its_nodes(const trace *t, const ty_wire *nodes)
{
    ty_digest digest;

    if (ty_wire_length(&t->whole) == 0 || ty_wire_length(&t->digest) == 0)
        return false;
    digest = ty_digest_of(nodes->at, ty_wire_length(nodes));
    return ty_wire_is(&t->digest, digest.hex);
}

static ty_status read_messages(trace *t)
{
    ty_wire file = ty_wire_of(t->source->bytes, t->source->length), message;
    ty_status status = TY_OK;

    if (next_message(&file, &message))
        TY_TRY(read_metadata(t, message));
    t->is_ours = has_its_nodes(t, &file);
    while (!t->is_ours && next_message(&file, &message))
        TY_TRY(read_node(t, message));
    if (file.is_broken)
        status = fail_broken(t, file.at);
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* A member under either of two names, from newer and older converters. */
static const char *which(const ty_json *object, const char *a, const char *b)
{
    return ty_json_has(object, a) ? a : ty_json_has(object, b) ? b : NULL;
}

static ty_status read_json_number(const ty_json *object, const char *a, const char *b, double *out,
                                  ty_error *error)
{
    const char *key = which(object, a, b);
    return key != NULL ? ty_json_number(object, key, 0, 1e30, out, error) : TY_OK;
}

static ty_status read_json_edges(trace *t, const ty_json *object, const char *key, uint64_t id)
{
    ty_error *error = t->source->error;
    const ty_json *list;
    uint64_t from;

    if (!ty_json_has(object, key))
        return TY_OK;
    TY_TRY(ty_json_array(object, key, 0, TY_TRACED_MOST_EDGES, &list, error));
    for (size_t i = 0; i < ty_json_size(list); i++) {
        TY_TRY(ty_json_as_uint64(ty_json_at(list, i), 0, ((uint64_t)1 << 53) - 1, &from, error));
        TY_TRY(ty_traced_add_edge(&t->graph, from, id));
    }
    return TY_OK;
}

static ty_status read_json_node(trace *t, const ty_json *object)
{
    ty_error *error = t->source->error;
    facts f = nothing_said;
    const char *name = "", *key;
    uint64_t id;

    if (!ty_json_is_object(object))
        return ty_json_fail(object, error,
                            "a node: {\"Id\": ..., \"Name\": ..., \"NodeType\": ...}");
    key = which(object, "Id", "id");
    TY_TRY(
        ty_json_uint64(object, key != NULL ? key : "id", 0, ((uint64_t)1 << 53) - 1, &id, error));
    if ((key = which(object, "Name", "name")) != NULL)
        TY_TRY(ty_json_string(object, key, &name, error));
    key = which(object, "NodeType", "type");
    TY_TRY(ty_json_uint32(object, key != NULL ? key : "type", 0, 1000, &f.type, error));
    TY_TRY(read_json_number(object, "runtime", "duration_micros", &f.duration_us, error));
    TY_TRY(read_json_number(object, "num_ops", "", &f.operations, error));
    TY_TRY(read_json_number(object, "tensor_size", "", &f.tensor_bytes, error));
    TY_TRY(read_json_number(object, "comm_size", "", &f.communication_bytes, error));
    if (ty_json_has(object, "is_cpu_op"))
        TY_TRY(ty_json_bool(object, "is_cpu_op", &f.is_host, error));
    TY_TRY(add_node(t, id, name, strlen(name), &f));
    TY_TRY(read_json_edges(t, object, "data_deps", id));
    return read_json_edges(t, object, "ctrl_deps", id);
}

static ty_status read_json(trace *t)
{
    const ty_json *nodes;

    TY_TRY(ty_json_array(ty_import_json(t->source), "workload_graph", 1, TY_TRACED_MOST_NODES,
                         &nodes, t->source->error));
    for (size_t i = 0; i < ty_json_size(nodes); i++)
        TY_TRY(read_json_node(t, ty_json_at(nodes, i)));
    return TY_OK;
}

/* ---- The workload ---------------------------------------------------------------------------- */

static ty_status settle(trace *t)
{
    uint64_t communications =
        t->counts[TY_CHAKRA_SEND] + t->counts[TY_CHAKRA_RECEIVE] + t->counts[TY_CHAKRA_COLLECTIVE];
    uint32_t layers = 0, hosts = 0;
    bool is_ours = ty_wire_length(&t->name) > 0;
    char bytes[32];

    for (uint32_t i = 0; i < t->graph.node_count; i++) {
        ty_traced_node *n = &t->graph.nodes[i];
        bool is_left_out = n->is_work && n->is_host && t->has_device;
        hosts += is_left_out;
        if (is_left_out) {
            n->is_work = false;
            n->is_passed_over = true;
        }
        layers += n->is_work;
    }
    ty_format_bytes(t->communication_bytes, bytes);
    if (layers == 0)
        return ty_fail(
            t->source->error, TY_EPARSE,
            "%s: found %llu nodes that communicate (%s) and none that computes, expected "
            "computation: a workload is made of it, a plan says what is communicated",
            t->source->path, (unsigned long long)communications, bytes);
    if (hosts > 0) {
        /* A kernel depends on its launch; the device keeps the order of kernels. */
        t->graph.is_chain = true;
        ty_import_note(t->source,
                       "%u operators of the host are left out, since the device's are there; those "
                       "follow one another where nothing else ties them",
                       hosts);
    }
    if (communications > 0 && !is_ours)
        ty_import_note(t->source,
                       "%llu nodes that communicate (%s) are left out: the plan decides that",
                       (unsigned long long)communications, bytes);
    return TY_OK;
}

static ty_status name_workload(const trace *t, char **out)
{
    size_t length = ty_wire_length(&t->name);

    if (length == 0)
        return ty_import_name(t->source, out);
    *out = ty_strndup((const char *)t->name.at, length);
    return *out != NULL
               ? TY_OK
               : ty_fail(t->source->error, TY_ENOMEM, "%s: out of memory", t->source->path);
}

static ty_status build(trace *t, ty_workload **out)
{
    const ty_optimizer optimizer = {
        .kind = TY_OPTIMIZER_SGD, .learning_rate = 0.01, .momentum = 0.9};
    double batch = t->source->options->batch > 0 ? t->source->options->batch : t->global_batch;
    ty_status status = TY_OK;
    ty_builder *b = NULL;
    char *name = NULL, *origin = NULL;

    TY_CHECK(name_workload(t, &name), status, cleanup);
    origin = ty_strndup((const char *)t->origin.at, ty_wire_length(&t->origin));
    TY_CHECK(ty_check_memory(origin != NULL, t->source->error), status, cleanup);
    b = ty_builder_new(name, TY_INPUT_REAL,
                       &(ty_shape){1, {t->input_elements >= 1 ? whole(t->input_elements) : 1}});
    ty_builder_set_source(b,
                          origin[0] != '\0' ? origin : "Chakra execution trace of one rank's step");
    ty_builder_set_training(b, "synthetic", batch >= 1 && batch <= UINT32_MAX ? (uint32_t)batch : 1,
                            &optimizer);
    TY_CHECK(ty_traced_build(&t->graph, b), status, cleanup);
    status = ty_import_finish(t->source, b, out);
    b = NULL; /* ty_builder_finish frees it */

cleanup:
    ty_builder_free(b);
    ty_free(name);
    ty_free(origin);
    return status;
}

static ty_status read_whole(trace *t, ty_workload **out)
{
    ty_import_source *source = t->source;
    ty_json_document *document = NULL;
    ty_workload *workload = NULL;
    ty_status status = ty_json_parse((const char *)t->whole.at, ty_wire_length(&t->whole),
                                     source->path, &document, source->error);

    if (status != TY_OK)
        return status;
    TY_CHECK(ty_json_schema(ty_json_root(document), "trainyard.workload/1", source->error), status,
             cleanup);
    TY_CHECK(ty_workload_from_json(ty_json_root(document), &workload, source->error), status,
             cleanup);
    if (source->options->batch != 0)
        workload->global_batch = source->options->batch;
    *out = workload;

cleanup:
    ty_json_free(document);
    return status;
}

static ty_status read_with(ty_import_source *source, ty_status (*read_nodes)(trace *),
                           ty_workload **out)
{
    trace t = {.source = source,
               .graph = {.source = source, .prefix = "node", .may_be_partial = true},
               .name = ty_wire_of("", 0),
               .origin = ty_wire_of("", 0),
               .whole = ty_wire_of("", 0),
               .digest = ty_wire_of("", 0)};
    ty_status status = TY_OK;

    if (source->options->sequence != 0)
        return ty_fail(source->error, TY_EINVAL,
                       "%s: found sequence=%llu, but a trace has the length it was made at",
                       source->path, (unsigned long long)source->options->sequence);
    TY_CHECK(read_nodes(&t), status, cleanup);
    if (t.is_ours) {
        status = read_whole(&t, out);
        goto cleanup;
    }
    TY_CHECK(ty_traced_connect(&t.graph), status, cleanup);
    TY_CHECK(settle(&t), status, cleanup);
    status = build(&t, out);

cleanup:
    ty_traced_clear(&t.graph);
    return status;
}

static ty_status read_stream(ty_import_source *source, ty_workload **out)
{
    return read_with(source, read_messages, out);
}

static ty_status read_document(ty_import_source *source, ty_workload **out)
{
    return read_with(source, read_json, out);
}

/* Metadata with only a version or attributes, then the end or a node. */
static bool probe_stream(ty_import_source *source)
{
    ty_wire file = ty_wire_of(source->bytes, source->length), message;
    ty_wire_field f;
    uint32_t fields = 0;

    if (!next_message(&file, &message))
        return false;
    while (ty_wire_next(&message, &f)) {
        if (f.type != TY_WIRE_BYTES || f.number > TY_CHAKRA_METADATA_ATTRIBUTE)
            return false;
        fields++;
    }
    if (message.is_broken || fields == 0 || !next_message(&file, &message))
        return !message.is_broken && fields > 0;
    return !ty_wire_next(&message, &f) || f.number <= TY_CHAKRA_ATTRIBUTE + 1;
}

static bool probe_document(ty_import_source *source)
{
    const ty_json *root = ty_import_json(source);
    return root != NULL && ty_json_is_object(root) && ty_json_has(root, "workload_graph");
}

const ty_import_format ty_import_chakra = {"Chakra execution trace", probe_stream, read_stream,
                                           false};
const ty_import_format ty_import_chakra_json = {"Chakra execution trace as JSON", probe_document,
                                                read_document, false};
