/* Programs as JSON, `trainyard.program/1`: one instruction per line. This file checks only the
 * shape.
 */
#include "json_parts.h"
#include "ty_base.h"
#include "ty_json.h"
#include "ty_program.h"

#define SCHEMA "trainyard.program/1"

enum { MAX_STAGES = 10000 };

JSON_NAMES(op_name, ty_op, ty_op_name)
JSON_NAMES(stream_name, ty_stream, ty_stream_name)
JSON_NAMES(direction_name, ty_direction, ty_direction_name)

/* The pipeline rank's own stage, which is `context`, is the default. */
static void write_stage(const json_field *field, const void *instruction, const void *context,
                        ty_json_writer *writer)
{
    const uint32_t stage = ((const ty_instruction *)instruction)->stage;

    if (stage != *(const uint32_t *)context)
        ty_json_put_uint(writer, field->key, stage);
}

#define AT(member) JSON_AT(ty_instruction, member)
#define MOST_INDEX (UINT32_MAX - 1)

/* Unset fields of an instruction are not written. */
static const json_field instruction_fields[] = {
    {"op", JSON_NAME, AT(op), .name = op_name, .name_count = TY_OP_COUNT},
    {"stream", JSON_NAME, AT(stream), .name = stream_name, .name_count = TY_STREAM_COUNT},
    {"stage", JSON_UINT32, AT(stage), 0, MOST_INDEX, .absent = TY_NO_STAGE, .is_optional = true,
     .write = write_stage},
    {"lead", JSON_UINT32, AT(lead), 0, MOST_INDEX, .is_optional = true},
    {"first_layer", JSON_UINT32, AT(first_layer), 0, MOST_INDEX, .is_optional = true,
     JSON_SAID(ty_instruction, layer_count)},
    {"layer_count", JSON_UINT32, AT(layer_count), 0, MOST_INDEX, .is_optional = true},
    {"micro_batch", JSON_UINT32, AT(micro_batch), 0, MOST_INDEX, .absent = TY_NO_MICRO_BATCH,
     .is_optional = true},
    {"bucket", JSON_UINT32, AT(bucket), 0, MOST_INDEX, .absent = TY_NO_BUCKET, .is_optional = true},
    {"phase", JSON_UINT32, AT(phase), 1, TY_MOST_PHASES - 1, .is_optional = true},
    {"peer_stage", JSON_UINT32, AT(peer_stage), 0, MOST_INDEX, .absent = TY_NO_STAGE,
     .is_optional = true},
    {"direction", JSON_NAME, AT(direction), .absent = TY_NO_DIRECTION, .name = direction_name,
     .name_count = TY_DIRECTION_COUNT, .is_optional = true},
    {"bytes", JSON_UINT64, AT(bytes), 0, (double)TY_JSON_MAX_INTEGER, .is_optional = true},
    {"waits", JSON_UINTS, AT(waits), 0, MOST_INDEX, .read = ty_record_pass_by,
     .count_at = offsetof(ty_instruction, wait_count), .is_optional = true},
};
static const json_record instruction_record = JSON_FLAT_RECORD(ty_instruction, instruction_fields);

/* Pipeline ranks: the entries of a program's `stages`. */
static const json_field stage_fields[] = {
    {"instructions", JSON_ROWS, .minimum = 1, .maximum = TY_NO_INSTRUCTION / 2,
     .of = &instruction_record},
};
static const json_record stage_record = JSON_RECORD(ty_stage_program, stage_fields);

static ty_status read_stage(const ty_json *object, ty_program *program, uint32_t stage,
                            ty_error *error)
{
    ty_status status;
    const ty_json *array;
    uint32_t *waits = NULL;

    TY_CHECK(ty_json_array(object, stage_fields[0].key, 1, TY_NO_INSTRUCTION / 2, &array, error),
             status, cleanup);
    for (uint32_t i = 0; i < ty_json_size(array); i++) {
        const ty_json *element = ty_json_at(array, i);
        ty_instruction instruction = {0};
        uint32_t wait_count = 0;
        if (!ty_json_is_object(element)) {
            status = ty_json_fail(element, error, "an instruction");
            goto cleanup;
        }
        TY_CHECK(ty_record_read(element, &instruction_record, &instruction, NULL, error), status,
                 cleanup);
        if (ty_json_has(element, "waits")) {
            /* Waits must point backwards, because appending relies on it. */
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

static ty_status read_stages(const ty_json *object, const json_field *field, void *out,
                             const void *context, ty_error *error)
{
    ty_program *program = out;
    const ty_json *stages;

    (void)context;
    TY_TRY(ty_json_array(object, field->key, 1, MAX_STAGES, &stages, error));
    program->stages = ty_alloc(ty_json_size(stages), sizeof *program->stages);
    TY_TRY(ty_check_memory(program->stages != NULL, error));
    program->stage_count = (uint32_t)ty_json_size(stages);
    for (uint32_t s = 0; s < program->stage_count; s++)
        TY_TRY(read_stage(ty_json_at(stages, s), program, s, error));
    return TY_OK;
}

static void write_stages(const json_field *field, const void *in, const void *context,
                         ty_json_writer *writer)
{
    const ty_program *program = in;

    (void)context;
    ty_json_open(writer, field->key, '[');
    for (uint32_t s = 0; s < program->stage_count; s++) {
        ty_json_open(writer, NULL, '{');
        ty_json_open(writer, stage_fields[0].key, '[');
        for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
            ty_record_write(&instruction_record, &program->stages[s].instructions[i], &s, writer,
                            NULL);
        ty_json_close(writer, ']');
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
}

static const json_field fields[] = {
    {"plan_digest", JSON_DIGEST, JSON_AT(ty_program, plan_digest)},
    {"stages", JSON_ROWS, .minimum = 1, .maximum = MAX_STAGES, .of = &stage_record,
     .read = read_stages, .write = write_stages},
};
const json_record ty_program_record = JSON_RECORD(ty_program, fields);

void ty_program_to_json(const ty_program *program, ty_json_writer *writer, const char *key)
{
    ty_record_write_document(SCHEMA, &ty_program_record, program, NULL, writer, key);
}

ty_status ty_program_from_json(const ty_json *object, ty_program **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_program *program = ty_alloc(1, sizeof *program);

    TY_TRY(ty_check_memory(program != NULL, error));
    TY_CHECK(ty_json_schema(object, SCHEMA, error), status, cleanup);
    TY_CHECK(ty_record_read_all(object, &ty_program_record, program, NULL, error), status, cleanup);
    *out = program;
    program = NULL;

cleanup:
    ty_program_free(program);
    return status;
}
