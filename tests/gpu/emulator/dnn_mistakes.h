/**
 * @file dnn_mistakes.h
 * Mistakes in the backend's calls of cuDNN's graph interface, inserted one at a time between the
 * backend and the library or its stand-in.
 */
#ifndef TY_TEST_GPU_DNN_MISTAKES_H
#define TY_TEST_GPU_DNN_MISTAKES_H

#include "cuda_libraries.h"

typedef enum dnn_sort {
    DNN_NOTHING,
    DNN_LEAVE_OUT,    /* the attribute is not set */
    DNN_OTHER_TYPE,   /* set as another type */
    DNN_FEWER,        /* with one value less */
    DNN_SAME_NUMBER,  /* a value of another attribute */
    DNN_OTHER_STRIDE, /* rows are closer together */
    DNN_OTHER_SIZE,   /* rows are shorter */
    DNN_OTHER_DATA,   /* a tensor of halves */
    DNN_SHIFTED,      /* the last pointer is two bytes further */
    DNN_NO_POINTER,   /* the last pointer is NULL */
    DNN_OPEN,         /* a descriptor is not finalized */
    DNN_CHANGED       /* or is set after that */
} dnn_sort;

/** The mistake affects a call that sets this attribute, after the first N such calls. */
typedef struct dnn_mistake {
    const char *what;
    dnn_sort sort;
    cudnnBackendAttributeName_t name;
    int after;
} dnn_mistake;

/** Mistakes that are detected when plans are made. */
enum { DNN_PLAN_MISTAKES = 9 };
extern const dnn_mistake dnn_plan_mistakes[DNN_PLAN_MISTAKES];
/** Of those of convolutions. */
enum { DNN_CONV_MISTAKES = 11 };
extern const dnn_mistake dnn_conv_mistakes[DNN_CONV_MISTAKES];

/** The library's functions. They contain a mistake after dnn_plant. */
cuda_dnn dnn_meddled(const cuda_dnn *library);
/** Inserts a mistake. NULL: none from now on. */
void dnn_plant(const dnn_mistake *mistake);
/** Whether the call with the mistake has been made. */
bool dnn_was_made(void);

#endif
