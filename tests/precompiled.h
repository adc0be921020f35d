// The headers that most tests include: see kernels/precompiled.h.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/precompiled.h"
