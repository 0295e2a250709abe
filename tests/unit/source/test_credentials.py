"""Which credentials are used, where they come from, and that no message shows one."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from hotset.errors import Denied, InvalidInput, Unavailable
from hotset.source import SourceOptions, describe_environment
from hotset.source.credentials import find_credentials
from hotset.source.profiles import load_profile
from tests.contract.standins import Shelf

SECRET = "s3cr3t"
KEYS = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": SECRET}
LATER = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)


def find(env, options=None, scheme="s3", *, aws=True):
    return find_credentials(scheme, options or SourceOptions(), env, region="us-east-1", aws=aws)


@pytest.fixture
def home(tmp_path):
    (tmp_path / ".aws").mkdir()
    return tmp_path


@pytest.fixture
def shelf():
    with Shelf() as shelf:
        yield shelf


class TestOrder:
    def test_what_the_caller_gives_comes_first(self):
        found = find(KEYS, SourceOptions(access_key="given", secret_key="x", session_token="t"))
        assert (found.provider().access_key, found.provider().session_token) == ("given", "t")

    def test_variables(self):
        found = find({**KEYS, "AWS_SESSION_TOKEN": "t"})
        assert found.kind == "environment variable AWS_ACCESS_KEY_ID"
        assert found.provider().session_token == "t"

    def test_anonymous_signs_nothing(self):
        assert find(KEYS, SourceOptions(anonymous=True)).provider is None

    def test_each_service_has_its_own_variables(self):
        env = {**KEYS, "OSS_ACCESS_KEY_ID": "oss", "OSS_ACCESS_KEY_SECRET": "x", "BCE_ACCESS_KEY_ID": "bos"}
        env["BCE_SECRET_ACCESS_KEY"] = "x"
        assert find(env, scheme="oss").provider().access_key == "oss"
        assert find(env, scheme="bos").provider().access_key == "bos"
        with pytest.raises(Denied, match="set COS_SECRET_ID and COS_SECRET_KEY"):
            find(env, scheme="cos")

    def test_a_named_profile_beats_variables_and_they_beat_the_default_one(self, home):
        (home / ".aws/credentials").write_text(
            "[default]\naws_access_key_id=d\naws_secret_access_key=x\n"
            "[work]\naws_access_key_id=w\naws_secret_access_key=x\n"
        )
        env = {"HOME": str(home)}
        assert find(env).provider().access_key == "d"
        assert find({**env, "AWS_PROFILE": "work"}).provider().access_key == "w"
        assert find({**env, **KEYS, "AWS_PROFILE": "work"}).provider().access_key == "AK"
        assert find({**env, **KEYS}, SourceOptions(profile="work")).provider().access_key == "w"

    def test_without_any_the_message_says_what_to_set(self):
        with pytest.raises(Denied, match=r"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.*AWS_PROFILE.*anonymous"):
            find({}, aws=False)
        with pytest.raises(Denied, match="AWS_ACCESS_KEY_ID"):
            find({"AWS_EC2_METADATA_DISABLED": "true"})

    @pytest.mark.parametrize("name", list(KEYS))
    def test_half_a_pair_is_named(self, name):
        with pytest.raises(Denied, match="set both"):
            find({name: SECRET})

    def test_half_a_given_pair_is_refused(self):
        with pytest.raises(Denied, match="together"):
            find(KEYS, SourceOptions(access_key="x"))


class TestProfiles:
    def test_settings_of_both_files(self, home):
        (home / ".aws/config").write_text(
            "[profile work]\nregion = eu-west-1\nservices = here\n\n[services here]\ns3 =\n"
            "  endpoint_url = http://127.0.0.1:1\n"
        )
        (home / ".aws/credentials").write_text("[work]\naws_access_key_id = w\naws_secret_access_key = x\n")
        profile = load_profile("work", {"HOME": str(home)})
        assert (profile.region, profile.endpoint, profile.access_key) == ("eu-west-1", "http://127.0.0.1:1", "w")

    def test_files_may_lie_elsewhere(self, tmp_path):
        (tmp_path / "c").write_text("[default]\naws_access_key_id = c\naws_secret_access_key = x\n")
        env = {"AWS_SHARED_CREDENTIALS_FILE": "~/c", "HOME": str(tmp_path)}
        assert load_profile(None, env).access_key == "c"

    def test_a_profile_that_is_not_there_is_named_with_the_files(self, home):
        with pytest.raises(InvalidInput, match=r"'nobody'.*credentials.*config"):
            find({"HOME": str(home), "AWS_PROFILE": "nobody"})

    def test_a_file_that_is_none_is_named(self, home):
        (home / ".aws/config").write_bytes(b"\xff\xfe not a file of profiles")
        with pytest.raises(InvalidInput, match="config"):
            find({"HOME": str(home)})

    def test_credential_process(self, home):
        answer = {"Version": 1, "AccessKeyId": "p", "SecretAccessKey": SECRET, "Expiration": LATER.isoformat()}
        script = home / "script.py"
        script.write_text(f"print({json.dumps(answer)!r})")
        (home / ".aws/config").write_text(f"[default]\ncredential_process = {sys.executable} {script}\n")
        found = find({"HOME": str(home)})
        assert found.kind == "profile 'default' (credential_process)"
        assert (found.provider().access_key, found.provider().expires) == ("p", LATER)

    @pytest.mark.parametrize("command", ["false", "/no/such/program", "echo not-json", "echo []", "echo {}", "'"])
    def test_a_process_that_fails_is_denied_without_its_output(self, home, command):
        (home / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
        with pytest.raises(Denied, match="credential_process of the profile 'default'"):
            find({"HOME": str(home)}).provider()

    def test_a_role_goes_through_botocore(self, home):
        (home / ".aws/config").write_text(
            "[profile base]\naws_access_key_id = b\naws_secret_access_key = x\n"
            "[profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = nobody\n"
        )
        found = find({"HOME": str(home), "AWS_PROFILE": "role", "AWS_CONFIG_FILE": str(home / ".aws/config")})
        assert found.kind == "profile 'role' (role_arn)"
        with pytest.raises(Denied, match="profile 'role'"):
            found.provider()

    def test_without_botocore_the_extra_is_named(self, home, monkeypatch):
        monkeypatch.setitem(sys.modules, "botocore.session", None)
        (home / ".aws/config").write_text("[default]\nsso_session = s\n")
        with pytest.raises(Denied, match=r"hotset\[aws\]"):
            find({"HOME": str(home)})


class TestRoles:
    def test_web_identity(self, shelf, tmp_path):
        (tmp_path / "token").write_text("identity-token")
        answer = (
            "<AssumeRoleWithWebIdentityResponse><Credentials><AccessKeyId>web</AccessKeyId>"
            f"<SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>t</SessionToken>"
            f"<Expiration>{LATER.isoformat()}</Expiration></Credentials></AssumeRoleWithWebIdentityResponse>"
        )
        shelf.override = lambda _method, _path: (200, {}, answer.encode())
        env = {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_ARN": "arn:role",
            "AWS_ENDPOINT_URL_STS": shelf.endpoint,
        }
        found = find(env)
        credentials = found.provider()
        assert (credentials.access_key, credentials.session_token, credentials.expires) == ("web", "t", LATER)
        found.provider()
        [(method, _, headers)] = shelf.seen  # kept until it is about to expire
        assert method == "POST"
        assert "WebIdentityToken=identity-token" in headers["body"]
        assert "RoleArn=arn%3Arole" in headers["body"]

    @pytest.mark.parametrize(("status", "error"), [(403, Denied), (503, Unavailable), (200, Denied)])
    def test_a_refused_web_identity(self, shelf, tmp_path, status, error):
        (tmp_path / "token").write_text(SECRET)
        shelf.override = lambda _method, _path: (status, {}, b"<Error/>")
        env = {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_ARN": "arn:role",
            "AWS_ENDPOINT_URL_STS": shelf.endpoint,
        }
        with pytest.raises(error) as caught:
            find(env).provider()
        assert SECRET not in str(caught.value)

    def test_a_missing_token_file_is_named(self):
        with pytest.raises(Denied, match="/absent/token"):
            find({"AWS_WEB_IDENTITY_TOKEN_FILE": "/absent/token", "AWS_ROLE_ARN": "r"}).provider()

    def test_container(self, shelf, tmp_path):
        (tmp_path / "token").write_text("Bearer x\n")
        answer = {"AccessKeyId": "c", "SecretAccessKey": SECRET, "Token": "t", "Expiration": LATER.isoformat()}
        shelf.override = lambda _method, _path: (200, {}, json.dumps(answer).encode())
        env = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{shelf.endpoint}/role",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token"),
            "HTTP_PROXY": "http://127.0.0.1:1",
        }
        assert find(env).provider().access_key == "c"
        assert shelf.seen[0][2]["authorization"] == "Bearer x"

    def test_a_container_token_is_not_sent_just_anywhere(self):
        with pytest.raises(Denied, match="https"):
            find({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://elsewhere.example/role"})

    def test_instance(self, shelf):
        answer = {"AccessKeyId": "i", "SecretAccessKey": SECRET, "Token": "t", "Expiration": LATER.isoformat()}

        def metadata(method, path):
            if method == "PUT":
                return 200, {}, b"metadata-token"
            return 200, {}, b"the-role" if path.endswith("/") else json.dumps(answer).encode()

        shelf.override = metadata
        found = find({"AWS_EC2_METADATA_SERVICE_ENDPOINT": shelf.endpoint})
        assert found.provider().access_key == "i"
        assert [headers.get("x-aws-ec2-metadata-token") for _, _, headers in shelf.seen] == [
            None,
            "metadata-token",
            "metadata-token",
        ]
        assert shelf.seen[-1][1].endswith("/security-credentials/the-role")

    def test_a_machine_without_a_role_is_told_what_to_set(self, shelf):
        found = find({"AWS_EC2_METADATA_SERVICE_ENDPOINT": shelf.endpoint})
        with pytest.raises(Denied, match="set AWS_ACCESS_KEY_ID"):
            found.provider()

    def test_no_metadata_service_is_the_same(self):
        found = find({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"})
        with pytest.raises(Denied, match="set AWS_ACCESS_KEY_ID"):
            found.provider()


class TestDescribe:
    def test_s3(self):
        env = {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_REGION": "eu-west-1"}
        seen = describe_environment("s3://b/x", {**env, "HTTP_PROXY": f"http://u:{SECRET}@proxy:1"})
        assert (seen.endpoint, seen.region, seen.proxy) == ("http://127.0.0.1:9000", "eu-west-1", True)
        assert seen.credentials == "environment variable AWS_ACCESS_KEY_ID"
        assert seen.problem is None
        assert SECRET not in repr(seen)

    @pytest.mark.parametrize(
        ("uri", "env", "credentials"),
        [
            ("gs://b", {"GOOGLE_APPLICATION_CREDENTIALS": "/f"}, "file of GOOGLE_APPLICATION_CREDENTIALS"),
            ("gs://b", {"GOOGLE_BEARER_TOKEN": SECRET}, "environment variable GOOGLE_BEARER_TOKEN"),
            ("gs://b", {"GOOGLE_SERVICE_ACCOUNT_KEY": SECRET}, "environment variable GOOGLE_SERVICE_ACCOUNT_KEY"),
            ("gs://b", {"GOOGLE_SERVICE_ACCOUNT": "/f"}, "file of GOOGLE_SERVICE_ACCOUNT"),
            ("gs://b", {"STORAGE_EMULATOR_HOST": "127.0.0.1:1"}, "anonymous"),
            ("gs://b", {}, "account of this machine (metadata server)"),
            ("az://c@a", {"AZURE_STORAGE_ACCOUNT_KEY": SECRET}, "environment variable AZURE_STORAGE_ACCOUNT_KEY"),
            ("az://c@a", {"AZURE_STORAGE_SAS_TOKEN": f"?{SECRET}"}, "environment variable AZURE_STORAGE_SAS_TOKEN"),
            ("az://c@a", {"AZURE_CLIENT_SECRET": SECRET}, "service principal (AZURE_CLIENT_SECRET)"),
            ("az://c@a", {"AZURE_FEDERATED_TOKEN_FILE": "/f"}, "workload identity (AZURE_FEDERATED_TOKEN_FILE)"),
            ("az://c@a", {"AZURE_USE_AZURE_CLI": "true"}, "login of the az command (AZURE_USE_AZURE_CLI)"),
            ("az://c@a", {}, "managed identity of this machine"),
        ],
    )
    def test_other_clouds(self, uri, env, credentials):
        seen = describe_environment(uri, env)
        assert seen.credentials == credentials
        assert SECRET not in repr(seen)

    def test_options_of_other_clouds(self):
        for uri, options in (
            ("gs://b", SourceOptions(session_token=SECRET)),
            ("az://c@a", SourceOptions(session_token=SECRET)),
            ("az://c@a", SourceOptions(secret_key=SECRET)),
        ):
            assert "given by the caller" in describe_environment(uri, {}, options=options).credentials
            assert SECRET not in repr(options)
        anonymous = SourceOptions(anonymous=True)
        assert describe_environment("gs://b", {}, options=anonymous).credentials == "anonymous"
        assert describe_environment("az://c@a", {}, options=anonymous).credentials == "anonymous"

    @pytest.mark.parametrize(
        ("uri", "says"),
        [("bos://b", "BOS_ENDPOINT"), ("az://c", "AZURE_STORAGE_ACCOUNT_NAME"), ("oss://b.oss-x.aliyuncs.com", "OSS_")],
    )
    def test_what_is_missing_is_the_problem(self, uri, says):
        assert says in describe_environment(uri, {}).problem

    def test_files_and_manifests(self):
        assert describe_environment("/data", {}).scheme == "file"
        shown = describe_environment(f"https://h/m?sig={SECRET}", {})
        assert shown.endpoint == "https://h/m"
        assert SECRET not in repr(shown)
