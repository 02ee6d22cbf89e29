/* Inserts mistakes into calls of cuDNN. */
#include "dnn_mistakes.h"

#include "cuda_dnn.h"

#include <string.h>

const dnn_mistake dnn_plan_mistakes[DNN_PLAN_MISTAKES] = {
    {"no strides", DNN_LEAVE_OUT, CUDNN_ATTR_TENSOR_STRIDES, 1},
    {"three strides", DNN_FEWER, CUDNN_ATTR_TENSOR_STRIDES, 2},
    {"sizes as doubles", DNN_OTHER_TYPE, CUDNN_ATTR_TENSOR_DIMENSIONS, 4},
    {"two tensors of one number", DNN_SAME_NUMBER, CUDNN_ATTR_TENSOR_UNIQUE_ID, 3},
    {"a product that makes nothing", DNN_LEAVE_OUT, CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1},
    {"a choice without conditions", DNN_LEAVE_OUT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 0},
    {"an operation left out", DNN_FEWER, CUDNN_ATTR_OPERATIONGRAPH_OPS, 1},
    {"a tensor that is not final", DNN_OPEN, CUDNN_ATTR_TENSOR_UNIQUE_ID, 5},
    {"a tensor changed behind that", DNN_CHANGED, CUDNN_ATTR_TENSOR_UNIQUE_ID, 5},
};

const dnn_mistake dnn_conv_mistakes[DNN_CONV_MISTAKES] = {
    {"padding of rows alone", DNN_FEWER, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 0},
    {"no padding behind", DNN_LEAVE_OUT, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 0},
    {"strides as doubles", DNN_OTHER_TYPE, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 0},
    {"no weights", DNN_LEAVE_OUT, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 0},
    {"weights of another type", DNN_OTHER_DATA, CUDNN_ATTR_TENSOR_DATA_TYPE, 1},
    {"images of half the width", DNN_OTHER_SIZE, CUDNN_ATTR_TENSOR_DIMENSIONS, 0},
    {"images' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 0},
    {"weights' rows too close", DNN_OTHER_STRIDE, CUDNN_ATTR_TENSOR_STRIDES, 1},
    {"no strides of tensors", DNN_LEAVE_OUT, CUDNN_ATTR_TENSOR_STRIDES, 2},
    {"a tensor that is not final", DNN_OPEN, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1},
    {"a tensor changed behind that", DNN_CHANGED, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1},
};

static cuda_dnn real;
static const dnn_mistake *planted;
static int left;                      /* number of calls before its turn; below 0: done */
static cudnnBackendDescriptor_t last; /* whose finalization has the mistake */

static bool is_its_turn(cudnnBackendAttributeName_t name)
{
    return planted != NULL && planted->name == name && left-- == 0;
}

static cudnnStatus_t meddled_set(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t count,
                                 const void *values)
{
    const cudnnDataType_t halves = CUDNN_DATA_HALF;
    int64_t numbers[8] = {0};
    void *pointers[CUDA_DNN_MOST_POINTERS];

    if (!is_its_turn(name))
        return real.cudnnBackendSetAttribute(of, name, type, count, values);
    switch (planted->sort) {
    case DNN_LEAVE_OUT:
        return CUDNN_STATUS_SUCCESS;
    case DNN_OTHER_TYPE:
        return real.cudnnBackendSetAttribute(of, name, CUDNN_TYPE_DOUBLE, count, values);
    case DNN_FEWER:
        return real.cudnnBackendSetAttribute(of, name, type, count - 1, values);
    case DNN_SAME_NUMBER:
        numbers[0] = 1;
        return real.cudnnBackendSetAttribute(of, name, type, count, numbers);
    case DNN_OTHER_STRIDE:
        memcpy(numbers, values, (size_t)count * sizeof *numbers);
        numbers[numbers[2] > numbers[3] ? 2 : 3] /= 2;
        return real.cudnnBackendSetAttribute(of, name, type, count, numbers);
    case DNN_OTHER_SIZE:
        memcpy(numbers, values, (size_t)count * sizeof *numbers);
        numbers[count - 1] /= 2;
        return real.cudnnBackendSetAttribute(of, name, type, count, numbers);
    case DNN_OTHER_DATA:
        return real.cudnnBackendSetAttribute(of, name, type, count, &halves);
    case DNN_SHIFTED:
    case DNN_NO_POINTER:
        memcpy(pointers, values, (size_t)count * sizeof *pointers);
        pointers[count - 1] = planted->sort == DNN_SHIFTED ? (char *)pointers[count - 1] + 2 : NULL;
        return real.cudnnBackendSetAttribute(of, name, type, count, pointers);
    case DNN_OPEN:
    case DNN_CHANGED:
        last = of;
        break;
    }
    return real.cudnnBackendSetAttribute(of, name, type, count, values);
}

static cudnnStatus_t meddled_finalize(cudnnBackendDescriptor_t of)
{
    const bool is_by_value = true;
    cudnnStatus_t status;

    if (of == last && planted->sort == DNN_OPEN)
        return CUDNN_STATUS_SUCCESS;
    status = real.cudnnBackendFinalize(of);
    if (of == last && planted->sort == DNN_CHANGED && status == CUDNN_STATUS_SUCCESS)
        status = real.cudnnBackendSetAttribute(of, CUDNN_ATTR_TENSOR_IS_BY_VALUE,
                                               CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
    return status;
}

cuda_dnn dnn_meddled(const cuda_dnn *library)
{
    cuda_dnn meddled = *library;

    real = *library;
    meddled.cudnnBackendSetAttribute = meddled_set;
    meddled.cudnnBackendFinalize = meddled_finalize;
    return meddled;
}

void dnn_plant(const dnn_mistake *mistake)
{
    planted = mistake;
    left = mistake != NULL ? mistake->after : 0;
    last = NULL;
}

bool dnn_was_made(void)
{
    return left < 0;
}
