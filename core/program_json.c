/* Programs as JSON, `trainyard.program/1`: one instruction a line. Only the shape is checked here.
 */
#include "json_parts.h"
#include "ty_memory.h"
#include "ty_program.h"

#define SCHEMA "trainyard.program/1"

enum { MAX_STAGES = 10000 };

static const char *op_name(int i)
{
    return ty_op_name((ty_op)i);
}

static const char *stream_name(int i)
{
    return ty_stream_name((ty_stream)i);
}

static const char *direction_name(int i)
{
    return ty_direction_name((ty_direction)i);
}

/* What an instruction has not is not written. */
static void write_instruction(const ty_instruction *in, uint32_t position, ty_json_writer *writer)
{
    ty_json_open_flat(writer, NULL, '{');
    ty_json_put_string(writer, "op", ty_op_name(in->op));
    ty_json_put_string(writer, "stream", ty_stream_name(in->stream));
    if (in->stage != position && in->stage != TY_NO_STAGE)
        ty_json_put_uint(writer, "stage", in->stage);
    if (in->lead > 0)
        ty_json_put_uint(writer, "lead", in->lead);
    if (in->layer_count > 0) {
        ty_json_put_uint(writer, "first_layer", in->first_layer);
        ty_json_put_uint(writer, "layer_count", in->layer_count);
    }
    if (in->micro_batch != TY_NO_MICRO_BATCH)
        ty_json_put_uint(writer, "micro_batch", in->micro_batch);
    if (in->bucket != TY_NO_BUCKET)
        ty_json_put_uint(writer, "bucket", in->bucket);
    if (in->phase > 0)
        ty_json_put_uint(writer, "phase", in->phase);
    if (in->peer_stage != TY_NO_STAGE)
        ty_json_put_uint(writer, "peer_stage", in->peer_stage);
    if (in->direction != TY_NO_DIRECTION)
        ty_json_put_string(writer, "direction", ty_direction_name(in->direction));
    if (in->bytes > 0)
        ty_json_put_uint(writer, "bytes", in->bytes);
    if (in->wait_count > 0)
        ty_json_put_uint32_array(writer, "waits", in->waits, in->wait_count);
    ty_json_close(writer, '}');
}

void ty_program_to_json(const ty_program *program, ty_json_writer *writer, const char *key)
{
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", SCHEMA);
    ty_json_put_string(writer, "plan_digest", program->plan_digest.hex);
    ty_json_open(writer, "stages", '[');
    for (uint32_t s = 0; s < program->stage_count; s++) {
        ty_json_open(writer, NULL, '{');
        ty_json_open(writer, "instructions", '[');
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
            write_instruction(&program->stages[s].instructions[i], s, writer);
        ty_json_close(writer, ']');
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

/* An index that may be missing; `out` keeps its value then. */
static ty_status read_index_if(const ty_json *object, const char *key, uint32_t *out,
                               ty_error *error)
{
    return ty_json_has(object, key) ? ty_json_uint32(object, key, 0, UINT32_MAX - 1, out, error)
                                    : TY_OK;
}

static ty_status read_instruction(const ty_json *object, ty_instruction *in, ty_error *error)
{
    ty_status status;
    int number;

    if (!ty_json_is_object(object))
        return ty_json_fail(object, error, "an instruction");
    TY_CHECK(ty_json_name(object, "op", op_name, TY_OP_COUNT, &number, error), status, done);
    *in = ty_instruction_of((ty_op)number);
    TY_CHECK(ty_json_name(object, "stream", stream_name, TY_STREAM_COUNT, &number, error), status,
             done);
    in->stream = (ty_stream)number;
    TY_CHECK(read_index_if(object, "stage", &in->stage, error), status, done);
    TY_CHECK(read_index_if(object, "lead", &in->lead, error), status, done);
    TY_CHECK(read_index_if(object, "first_layer", &in->first_layer, error), status, done);
    TY_CHECK(read_index_if(object, "layer_count", &in->layer_count, error), status, done);
    TY_CHECK(read_index_if(object, "micro_batch", &in->micro_batch, error), status, done);
    TY_CHECK(read_index_if(object, "bucket", &in->bucket, error), status, done);
    if (ty_json_has(object, "phase"))
        TY_CHECK(ty_json_uint32(object, "phase", 1, TY_MOST_PHASES - 1, &in->phase, error), status,
                 done);
    TY_CHECK(read_index_if(object, "peer_stage", &in->peer_stage, error), status, done);
    if (ty_json_has(object, "direction")) {
        TY_CHECK(
            ty_json_name(object, "direction", direction_name, TY_DIRECTION_COUNT, &number, error),
            status, done);
        in->direction = (ty_direction)number;
    }
    if (ty_json_has(object, "bytes"))
        TY_CHECK(ty_json_uint64(object, "bytes", 0, TY_JSON_MAX_INTEGER, &in->bytes, error), status,
                 done);
    status = TY_OK;

done:
    return status;
}

static ty_status read_stage(const ty_json *object, ty_program *program, uint32_t stage,
                            ty_error *error)
{
    ty_status status;
    const ty_json *array;
    uint32_t *waits = NULL;

    TY_CHECK(ty_json_array(object, "instructions", 1, TY_NO_INSTRUCTION / 2, &array, error), status,
             cleanup);
    for (uint32_t i = 0; i < ty_json_size(array); i++) {
        const ty_json *element = ty_json_at(array, i);
        ty_instruction instruction;
        uint32_t wait_count = 0;
        TY_CHECK(read_instruction(element, &instruction, error), status, cleanup);
        if (ty_json_has(element, "waits")) {
            /* Shape includes that waits point backwards: appending relies on it. */
            if (i == 0) {
                status = ty_json_fail(element, error, "no waits of the first instruction");
                goto cleanup;
            }
            TY_CHECK(
                ty_json_uint32_array(element, "waits", 0, i, 0, i - 1, &waits, &wait_count, error),
                status, cleanup);
        }
        TY_CHECK(ty_json_end(element, error), status, cleanup);
        TY_CHECK(ty_program_append(program, stage, &instruction, waits, wait_count, NULL, error),
                 status, cleanup);
        ty_free(waits);
        waits = NULL;
    }
    status = ty_json_end(object, error);

cleanup:
    ty_free(waits);
    return status;
}

ty_status ty_program_from_json(const ty_json *object, ty_program **out, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *stages;
    ty_program *program = ty_alloc(1, sizeof *program);

    if (program == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(ty_json_schema(object, SCHEMA, error), status, cleanup);
    TY_CHECK(ty_json_digest(object, "plan_digest", &program->plan_digest, error), status, cleanup);
    TY_CHECK(ty_json_array(object, "stages", 1, MAX_STAGES, &stages, error), status, cleanup);
    program->stages = ty_alloc(ty_json_size(stages), sizeof *program->stages);
    if (program->stages == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    program->stage_count = (uint32_t)ty_json_size(stages);
    for (uint32_t s = 0; s < program->stage_count; s++)
        TY_CHECK(read_stage(ty_json_at(stages, s), program, s, error), status, cleanup);
    TY_CHECK(ty_json_end(object, error), status, cleanup);
    *out = program;
    program = NULL;

cleanup:
    ty_program_free(program);
    return status;
}
