/**
 * @file predictors.h
 * One function pair per way to predict; the table is in predictors.c. Internal to
 * planner/validate/.
 */
#ifndef TY_PLANNER_PREDICTORS_H
#define TY_PLANNER_PREDICTORS_H

#include "ty_validate.h"

bool ty_takes_data_parallel_scaling(const ty_records *records, uint32_t index);
ty_status ty_predict_data_parallel_scaling(const ty_records *records, uint32_t index,
                                           ty_verdict *out, ty_error *error) TY_MUST_CHECK;

bool ty_takes_data_parallel_absolute(const ty_records *records, uint32_t index);
ty_status ty_predict_data_parallel_absolute(const ty_records *records, uint32_t index,
                                            ty_verdict *out, ty_error *error) TY_MUST_CHECK;

bool ty_takes_pipeline(const ty_records *records, uint32_t index);
ty_status ty_predict_pipeline(const ty_records *records, uint32_t index, ty_verdict *out,
                              ty_error *error) TY_MUST_CHECK;

bool ty_takes_pipedream(const ty_records *records, uint32_t index);
ty_status ty_predict_pipedream(const ty_records *records, uint32_t index, ty_verdict *out,
                               ty_error *error) TY_MUST_CHECK;

bool ty_takes_large_collective(const ty_records *records, uint32_t index);
bool ty_takes_small_collective(const ty_records *records, uint32_t index);
ty_status ty_predict_collective(const ty_records *records, uint32_t index, ty_verdict *out,
                                ty_error *error) TY_MUST_CHECK;

bool ty_takes_language_model(const ty_records *records, uint32_t index);
ty_status ty_predict_language_model(const ty_records *records, uint32_t index, ty_verdict *out,
                                    ty_error *error) TY_MUST_CHECK;

bool ty_takes_series(const ty_records *records, uint32_t index);
ty_status ty_predict_series(const ty_records *records, uint32_t index, ty_verdict *out,
                            ty_error *error) TY_MUST_CHECK;

bool ty_takes_convergence(const ty_records *records, uint32_t index);
ty_status ty_predict_convergence(const ty_records *records, uint32_t index, ty_verdict *out,
                                 ty_error *error) TY_MUST_CHECK;

#endif
