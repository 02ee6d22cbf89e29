/*
 * Plans with programs and timelines made by rule, for the tests of reports.
 *
 * Instruction i of a stage's program begins i * 10 ms after its step and takes a time that depends
 * on its operation. Steps begin every second. A receive begins with the step and ends a fixed time
 * after its send begins. Stage replica r reaches a collective (stage replicas - r) ms later than
 * other instructions. All its members leave it together, a fixed time after the last one arrived.
 */
#ifndef TY_TEST_SCENE_H
#define TY_TEST_SCENE_H

#include "ty_reports.h"

#include "toy.h"

typedef struct scene {
    ty_plan *plan;
    ty_program *program;
} scene;

/* Of one of toy_specs. */
scene scene_of(const char *spec);
void scene_clear(scene *s);

/* Seconds of an instruction: from the sender's start for a receive, from the last member's for a
 * collective. */
typedef double (*scene_rule)(uint32_t stage_replica, uint32_t step, uint32_t index,
                             const ty_instruction *instruction);
ty_timeline *scene_timeline(const scene *s, uint32_t steps, scene_rule rule);

/* 2 ms for everything. */
double scene_two_ms(uint32_t stage_replica, uint32_t step, uint32_t index,
                    const ty_instruction *in);
/* 1 ms, plus one more for each stage replica and step. */
double scene_slowing(uint32_t stage_replica, uint32_t step, uint32_t index,
                     const ty_instruction *in);

/* A run of the plan with that timeline, which it takes over; ten steps with falling loss. */
ty_run *scene_run(const scene *s, ty_timeline *timeline);

/* A prediction, memory and candidates with which the plan still passes ty_plan_check. */
void scene_predict(scene *s);

/* A report and its JSON document. The HTML passed the checks for every report. */
typedef struct scene_page {
    char *html;
    ty_json_document *parsed;
} scene_page;
scene_page scene_page_of(const ty_report_input *input);
void scene_page_clear(scene_page *page);
/* The value at "plan/stages/0/like" in the document; NULL: not found. */
const ty_json *scene_at(const scene_page *page, const char *path);
/* The number at the path, NaN if it is no number; the text there, "" if it is no text. */
double scene_number(const scene_page *page, const char *path);
const char *scene_text(const scene_page *page, const char *path);
uint32_t scene_count(const char *text, const char *part);

#endif
