#include "block_manager/cache_salt.h"

#include <gtest/gtest.h>

#include <set>

namespace quire::block_manager {
namespace {

using Tag = CacheSalt::Tag;

CacheSalt Make(std::string_view salt, std::string_view tenant) {
  return CacheSalt().With(Tag::kRequestSalt, salt).With(Tag::kTenant, tenant);
}

TEST(CacheSalt, C17_PartsAreToldApartByTagAndLength) {
  const CacheSalt salts[] = {
      CacheSalt(),
      Make("abc", ""),
      Make("", "abc"),
      Make("ab", "c"),
      Make("a", "bc"),
      Make("abc", "abc"),
      Make("org_1", "2345"),
      Make("org_12345", ""),
      CacheSalt::ForRequest(std::string_view("\0", 1)),
      CacheSalt::ForRequest(std::string_view("\0\0", 2)),
      CacheSalt::ForRequest(std::string(300, 'a')),
      CacheSalt::ForRequest(std::string(300 - 256, 'a')),
  };
  SaltRegistry registry;
  std::set<SaltId> ids;
  for (const CacheSalt& salt : salts) ids.insert(registry.Acquire(salt));
  EXPECT_EQ(ids.size(), std::size(salts));
}

TEST(CacheSalt, EmptyValuesAreNoParts) {
  EXPECT_TRUE(CacheSalt::ForRequest("").empty());
  EXPECT_EQ(Make("", ""), CacheSalt());
  EXPECT_EQ(Make("a", ""), CacheSalt::ForRequest("a"));
  EXPECT_FALSE(CacheSalt::ForRequest("a").empty());
}

TEST(SaltRegistry, EqualSaltsHaveOneNumberWhileInUse) {
  SaltRegistry registry;
  const SaltId a = registry.Acquire(CacheSalt::ForRequest("a"));
  const SaltId b = registry.Acquire(CacheSalt::ForRequest("b"));
  EXPECT_NE(a, b);
  EXPECT_NE(a, SaltId{});
  EXPECT_EQ(registry.Acquire(CacheSalt::ForRequest("a")), a);
  registry.Release(a);
  EXPECT_EQ(registry.Acquire(CacheSalt::ForRequest("a")), a);
  EXPECT_EQ(registry.size(), 2u);
}

TEST(SaltRegistry, TheHashIsOfTheSaltNotOfItsNumber) {
  SaltRegistry registry;
  EXPECT_EQ(registry.hash(SaltId{}), 0u);
  const SaltId a = registry.Acquire(CacheSalt::ForRequest("a"));
  const std::uint32_t hash_of_a = registry.hash(a);
  EXPECT_EQ(hash_of_a, CacheSalt::ForRequest("a").Hash());
  EXPECT_NE(hash_of_a, 0u);
  registry.Release(a);
  const SaltId b = registry.Acquire(CacheSalt::ForRequest("b"));
  EXPECT_EQ(b, a);  // The number is used again.
  EXPECT_NE(registry.hash(b), hash_of_a);
}

TEST(SaltRegistry, ForgetsASaltWithItsLastUse) {
  SaltRegistry registry;
  const SaltId a = registry.Acquire(CacheSalt::ForRequest("a"));
  registry.AddUse(a);
  registry.Release(a);
  EXPECT_EQ(registry.size(), 1u);
  registry.Release(a);
  EXPECT_EQ(registry.size(), 0u);
  // A thousand passing tenants leave nothing behind: the number is used again.
  for (int i = 0; i < 1000; ++i) {
    const SaltId id = registry.Acquire(CacheSalt::ForRequest(std::to_string(i)));
    EXPECT_EQ(id, a);
    registry.Release(id);
  }
  EXPECT_EQ(registry.size(), 0u);
}

TEST(SaltRegistry, TheEmptySaltIsZeroAndNotCounted) {
  SaltRegistry registry;
  EXPECT_EQ(registry.Acquire(CacheSalt()), SaltId{});
  registry.AddUse(SaltId{});
  registry.Release(SaltId{});
  EXPECT_EQ(registry.size(), 0u);
}

TEST(SaltRef, HoldsOneUse) {
  SaltRegistry registry;
  {
    SaltRef a(&registry, CacheSalt::ForRequest("a"));
    SaltRef moved = std::move(a);
    SaltRef shared = moved.Share();
    EXPECT_EQ(shared.id(), moved.id());
    moved = SaltRef(&registry, CacheSalt::ForRequest("b"));
    EXPECT_EQ(registry.size(), 2u);
    shared = SaltRef();
    EXPECT_EQ(registry.size(), 1u);
  }
  EXPECT_EQ(registry.size(), 0u);
}

}  // namespace
}  // namespace quire::block_manager
